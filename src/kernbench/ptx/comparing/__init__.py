"""Two devices that run one launch from the same bytes: do they agree, and if not, which instruction parts them."""
