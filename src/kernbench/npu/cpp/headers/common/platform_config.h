// What programs know of the platform: ticks of the clock in a second. The clock here counts how often it is asked.
#pragma once
#include <cstdint>
constexpr uint64_t PLATFORM_PROF_SYS_CNT_FREQ = 1000;
