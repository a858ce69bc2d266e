// Device code: SiLU, in one place, so that a gate gives the same bits wherever it is worked out.
#pragma once

#include "kernels/cuda/device.h"

namespace deltad::cuda {

DELTAD_DEVICE float silu(float v) { return v / (1.0f + expf(-v)); }

}  // namespace deltad::cuda
