#include <cstring>
#include <map>
#include <string_view>

#include "base/check.h"
#include "kernels/cuda/linear_decode.h"
#include "kernels/cuda/repack.h"
#include "kernels/cuda/sign_planes.h"
#include "tests/kernels/cuda/launcher.h"

namespace deltad::cuda {

extern "C" {
void deltad_repack_base(RepackBaseParams p);
void deltad_repack_signs(RepackSignsParams p);
void deltad_sign_planes(SignPlanesParams p);
void deltad_linear_r16(LinearParams p);
void deltad_linear_r16_signs1(LinearParams p);
void deltad_linear_r16_signs2(LinearParams p);
void deltad_linear_r16_signs4(LinearParams p);
void deltad_linear_r32(LinearParams p);
void deltad_linear_r32_signs1(LinearParams p);
void deltad_linear_r32_signs2(LinearParams p);
}

namespace {

using Emulate = emulator::Report (*)(const Launch&, std::span<const std::byte>,
                                     const emulator::Options&);

template <auto kKernel>
struct Of;
template <class Params, void (*kKernel)(Params)>
struct Of<kKernel> {
  static emulator::Report run(const Launch& shape, std::span<const std::byte> bytes,
                              const emulator::Options& options) {
    CHECK(bytes.size() == sizeof(Params), "parameters of another kernel");
    Params p;
    std::memcpy(&p, bytes.data(), sizeof p);
    return emulator::launch(kKernel, shape, p, options);
  }
};

}  // namespace

emulator::Report emulate(const char* kernel, const Launch& shape, std::span<const std::byte> params,
                         const emulator::Options& options) {
  static const std::map<std::string_view, Emulate> all = {
      {kRepackBaseKernel, &Of<deltad_repack_base>::run},
      {kRepackSignsKernel, &Of<deltad_repack_signs>::run},
      {kSignPlanesKernel, &Of<deltad_sign_planes>::run},
      {"deltad_linear_r16", &Of<deltad_linear_r16>::run},
      {"deltad_linear_r16_signs1", &Of<deltad_linear_r16_signs1>::run},
      {"deltad_linear_r16_signs2", &Of<deltad_linear_r16_signs2>::run},
      {"deltad_linear_r16_signs4", &Of<deltad_linear_r16_signs4>::run},
      {"deltad_linear_r32", &Of<deltad_linear_r32>::run},
      {"deltad_linear_r32_signs1", &Of<deltad_linear_r32_signs1>::run},
      {"deltad_linear_r32_signs2", &Of<deltad_linear_r32_signs2>::run}};
  const auto it = all.find(kernel);
  CHECK(it != all.end(), kernel);
  return it->second(shape, params, options);
}

}  // namespace deltad::cuda
