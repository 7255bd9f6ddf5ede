"""What happens before what, among pipes and among blocks, and the findings that follow where nothing does."""
