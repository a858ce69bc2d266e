// Special registers: what a thread knows about itself and its grid.
#include "tests/support/ptx/machine.h"

namespace deltad::ptx {
namespace {

Dim3 thread_of(const Warp& w, uint32_t lane) {
  const uint32_t t = 32 * w.index + lane;
  const Dim3 n = w.block->grid->threads;
  return {t % n.x, t / n.x % n.y, t / (n.x * n.y)};
}

Dim3 clusters_of(const Warp& w) {
  const Dim3 b = w.block->grid->blocks, c = w.block->grid->cluster;
  return {b.x / c.x, b.y / c.y, b.z / c.z};
}

Dim3 place_in_cluster(const Warp& w) {
  const Dim3 i = w.block->index, c = w.block->grid->cluster;
  return {i.x % c.x, i.y % c.y, i.z % c.z};
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
      {"%clusterid.x", [](const Warp& w, uint32_t) { return w.block->cluster->index.x; }},
      {"%clusterid.y", [](const Warp& w, uint32_t) { return w.block->cluster->index.y; }},
      {"%clusterid.z", [](const Warp& w, uint32_t) { return w.block->cluster->index.z; }},
      {"%nclusterid.x", [](const Warp& w, uint32_t) { return clusters_of(w).x; }},
      {"%nclusterid.y", [](const Warp& w, uint32_t) { return clusters_of(w).y; }},
      {"%nclusterid.z", [](const Warp& w, uint32_t) { return clusters_of(w).z; }},
      {"%cluster_ctaid.x", [](const Warp& w, uint32_t) { return place_in_cluster(w).x; }},
      {"%cluster_ctaid.y", [](const Warp& w, uint32_t) { return place_in_cluster(w).y; }},
      {"%cluster_ctaid.z", [](const Warp& w, uint32_t) { return place_in_cluster(w).z; }},
      {"%cluster_nctaid.x", [](const Warp& w, uint32_t) { return w.block->grid->cluster.x; }},
      {"%cluster_nctaid.y", [](const Warp& w, uint32_t) { return w.block->grid->cluster.y; }},
      {"%cluster_nctaid.z", [](const Warp& w, uint32_t) { return w.block->grid->cluster.z; }},
      {"%cluster_ctarank", [](const Warp& w, uint32_t) { return w.block->rank; }},
      {"%cluster_nctarank",
       [](const Warp& w, uint32_t) {
         return static_cast<uint32_t>(w.block->grid->cluster.count());
       }},
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
