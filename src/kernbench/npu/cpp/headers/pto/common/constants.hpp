#pragma once
#include "pto/common/type.hpp"
