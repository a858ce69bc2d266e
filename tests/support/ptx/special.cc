// Special registers: what a thread knows about itself and its grid.
#include "tests/support/ptx/machine.h"

namespace deltad::ptx {
namespace {

Dim3 thread_of(const Warp& w, uint32_t lane) {
  const uint32_t t = 32 * w.index + lane;
  const Dim3 n = w.block->grid->threads;
  return {t % n.x, t / n.x % n.y, t / (n.x * n.y)};
}

}  // namespace

SpecialRegister special_register(const std::string& name) {
  static const std::map<std::string, SpecialRegister> all = {
      {"%tid.x", [](const Warp& w, uint32_t l) { return thread_of(w, l).x; }},
      {"%tid.y", [](const Warp& w, uint32_t l) { return thread_of(w, l).y; }},
      {"%tid.z", [](const Warp& w, uint32_t l) { return thread_of(w, l).z; }},
      {"%ntid.x", [](const Warp& w, uint32_t) { return w.block->grid->threads.x; }},
      {"%ntid.y", [](const Warp& w, uint32_t) { return w.block->grid->threads.y; }},
      {"%ntid.z", [](const Warp& w, uint32_t) { return w.block->grid->threads.z; }},
      {"%ctaid.x", [](const Warp& w, uint32_t) { return w.block->index.x; }},
      {"%ctaid.y", [](const Warp& w, uint32_t) { return w.block->index.y; }},
      {"%ctaid.z", [](const Warp& w, uint32_t) { return w.block->index.z; }},
      {"%nctaid.x", [](const Warp& w, uint32_t) { return w.block->grid->blocks.x; }},
      {"%nctaid.y", [](const Warp& w, uint32_t) { return w.block->grid->blocks.y; }},
      {"%nctaid.z", [](const Warp& w, uint32_t) { return w.block->grid->blocks.z; }},
      {"%laneid", [](const Warp&, uint32_t l) { return l; }},
      {"%warpid", [](const Warp& w, uint32_t) { return w.index; }},
      {"%lanemask_eq", [](const Warp&, uint32_t l) { return 1U << l; }},
      {"%lanemask_lt", [](const Warp&, uint32_t l) { return (1U << l) - 1; }},
      {"%lanemask_le", [](const Warp&, uint32_t l) { return (2U << l) - 1; }},
      {"%lanemask_gt", [](const Warp&, uint32_t l) { return ~((2U << l) - 1); }},
      {"%lanemask_ge", [](const Warp&, uint32_t l) { return ~((1U << l) - 1); }}};
  const auto it = all.find(name);
  return it == all.end() ? nullptr : it->second;
}

}  // namespace deltad::ptx
