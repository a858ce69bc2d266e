// What happens when the host touches memory of a device.
#pragma once

#include <cstddef>

namespace deltad::emulated_gpu {

// The device's addresses are these from now on. Installs a handler of the signal, once.
void watch_device_addresses(int device, const void* base, size_t bytes);

}  // namespace deltad::emulated_gpu
