// A kernel around PTX written by hand: one pointer parameter in %data, the thread's number in %t,
// 256 bytes of shared memory.
#pragma once

#include <string>

namespace deltad::ptx {

inline std::string written_kernel(const std::string& body, const std::string& target = "sm_90a",
                                  const std::string& directives = "") {
  return ".version 9.0\n.target " + target + R"(
.address_size 64
.visible .entry k(.param .u64 k_param_0)
)" + directives +
         R"({
  .reg .pred %p<8>;
  .reg .b32 %r<32>;
  .reg .b64 %rd<8>;
  .reg .b32 %t;
  .reg .b64 %data;
  .shared .align 16 .b8 buffer[256];
  ld.param.u64 %data, [k_param_0];
  mov.u32 %t, %tid.x;
)" + body +
         "\n}\n";
}

}  // namespace deltad::ptx
