// FIFOs between the cores of a cluster.
#pragma once

#include "pto/common/pto_tile.hpp"

namespace pto {

enum TileSplitAxis : uint8_t {
    TILE_NO_SPLIT, TILE_UP_DOWN, TILE_LEFT_RIGHT, TILE_UP_DOWN_ODD, TILE_LEFT_RIGHT_ODD
};
enum Direction : uint8_t {
    UNDEFINED = 0, DIR_C2V = 1, DIR_V2C = 2, DIR_BOTH = 3, DIR_V2C_CTRL = 4, DIR_C2V_GM = 5, DIR_V2C_GM = 6,
    DIR_BOTH_GM = 7
};

}  // namespace pto
