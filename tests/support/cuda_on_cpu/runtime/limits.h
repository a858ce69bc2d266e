// Limits of a launch, of compute capability 9.0.
#pragma once

namespace deltad::emulated_gpu {

constexpr int kMaxThreads = 1024;
constexpr int kMaxBlock[3] = {1024, 1024, 64};
constexpr int kMaxGrid[3] = {2147483647, 65535, 65535};
constexpr int kDefaultSharedBytes = 48 << 10;  // of a block, without cudaFuncSetAttribute
constexpr int kMaxSharedBytes = 227 << 10;

}  // namespace deltad::emulated_gpu
