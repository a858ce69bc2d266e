// The device code that is part of the program: one image a file of kernels/cuda, each with all
// architectures it was compiled for (made by kernels/cuda.cmake).
#pragma once

#include <cstddef>
#include <span>

namespace deltad {

struct KernelImage {
  const char* name;
  const void* data;
  size_t bytes;
};

std::span<const KernelImage> kernel_images();

}  // namespace deltad
