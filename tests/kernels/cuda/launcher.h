// How a test's case runs a kernel of kernels/cuda, by its name: on the emulator, or as PTX
// (ptx/kernel.h). The buffers are emulator::DeviceBuffers either way.
#pragma once

#include <cstddef>
#include <functional>
#include <span>

#include "kernels/cuda/launch.h"
#include "tests/support/cuda_on_cpu/launch.h"

namespace deltad::cuda {

// `params`: the bytes of the kernel's parameter struct.
using Launcher =
    std::function<emulator::Report(const char* kernel, const Launch& shape,
                                   std::span<const std::byte> params, const emulator::Options&)>;

// On the emulator.
emulator::Report emulate(const char* kernel, const Launch& shape, std::span<const std::byte> params,
                         const emulator::Options& options);

}  // namespace deltad::cuda
