// The card of this machine, for tests of kernels: apart from them, because the toolkit's headers
// and the emulator's define the same types. One thread.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "kernels/cuda/launch.h"

namespace deltad::cuda {

// Why nothing can be run: no driver, one too old for this program, no card. "" if it can.
std::string card_problem();
// The architecture of the first card, as nvcc names what runs on it.
std::string card_architecture();

// Managed memory: its addresses are the host's and the card's alike.
std::byte* take_managed(size_t bytes);
void give_back_managed(std::byte* memory);

// Runs a kernel of a cubin to its end; what went wrong, or "". `params`: the bytes of its
// parameter.
std::string run_on_card(const std::string& cubin, const char* kernel, const Launch& shape,
                        std::span<const std::byte> params);

}  // namespace deltad::cuda
