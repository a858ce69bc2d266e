// The oracle of rotary embedding, fp64.
#pragma once

#include <cstdint>
#include <vector>

namespace deltad::ref {

// The angle of pair i at a position: position · theta^(−2i / head_dim).
double rope_angle(int64_t position, int i, int head_dim, double theta);

// Rotates the pairs (i, i + head_dim/2) of a head by their angles.
std::vector<double> rotate(const std::vector<double>& head, int64_t position, double theta);

}  // namespace deltad::ref
