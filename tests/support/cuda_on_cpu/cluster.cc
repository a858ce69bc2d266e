// Clusters: the members of Machine that start one, and that make its barrier and what its blocks do
// to each other.
#include <algorithm>
#include <bit>
#include <string>

#include "tests/support/cuda_on_cpu/machine.h"

namespace deltad::emulator {

uint32_t Machine::cluster_size() const {
  return launch_.cluster.x * launch_.cluster.y * launch_.cluster.z;
}

std::unique_ptr<Cluster> Machine::start_cluster(uint32_t number) {
  const cuda::Extent grid = launch_.grid, of = launch_.cluster, block = launch_.block;
  const uint32_t columns = grid.x / of.x, lines = grid.y / of.y;
  const uint3 first = {number % columns * of.x, number / columns % lines * of.y,
                       number / columns / lines * of.z};
  const uint32_t threads = block.x * block.y * block.z * cluster_size();
  auto cluster = std::make_unique<Cluster>();
  cluster->alive = cluster->missing = threads;
  cluster->races = std::make_unique<RaceDetector>(
      threads, size_t{(launch_.shared_bytes + 15) / 16 * 16} * cluster_size(), options_.races);
  for (uint32_t rank = 0; rank < cluster_size(); ++rank) {
    const uint3 index = {first.x + rank % of.x, first.y + rank / of.x % of.y,
                         first.z + rank / of.x / of.y};
    cluster->blocks.push_back(make_block(*cluster, index, rank));
    start_threads(*cluster->blocks.back());
  }
  return cluster;
}

std::string Machine::name_of(uint32_t clock) const {
  const Block& own = *current->block;
  const auto threads = static_cast<uint32_t>(own.threads.size());
  const uint32_t rank = clock / threads;
  if (rank >= own.cluster->blocks.size()) return "the copy engine";
  const std::string thread = "thread " + std::to_string(clock % threads);
  if (rank == own.rank) return thread;
  const uint3 at = own.cluster->blocks[rank]->index;
  return thread + " of block (" + std::to_string(at.x) + ", " + std::to_string(at.y) + ", " +
         std::to_string(at.z) + ")";
}

Block& Machine::peer(uint32_t rank, Where where) {
  Cluster& cluster = *current->block->cluster;
  if (rank >= cluster.blocks.size()) {
    fail(FaultKind::kRemote, *current, where, [&] {
      return "block " + std::to_string(rank) + " of a cluster of " +
             std::to_string(cluster.blocks.size());
    });
  }
  if (cluster.blocks[rank]->alive == 0) {
    fail(FaultKind::kRemote, *current, where,
         [&] { return "block " + std::to_string(rank) + " of the cluster has ended"; });
  }
  return *cluster.blocks[rank];
}

void Machine::note_remote_act(Block& block, uint32_t clock, uint32_t time, Where where) {
  for (RemoteAct& act : block.remote_acts) {
    if (act.clock != clock) continue;
    act.time = time;
    act.where = where;
    return;
  }
  block.remote_acts.push_back({clock, time, where});
}

// Its shared memory goes to another block: nothing may come to it any more, and what came must be
// known to have come, or it would have come later in another order of threads.
void Machine::block_ends(Block& block) {
  if (!block.bulk_copies.empty()) {
    fail(FaultKind::kInFlight, *current, current->waits_at,
         [] { return std::string("the block ends with bulk copies under way"); });
  }
  for (const RemoteAct& act : block.remote_acts) {
    if (std::any_of(block.threads.begin(), block.threads.end(), [&](const Thread& thread) {
          return block.races->knows(thread.clock, act.clock, act.time);
        })) {
      continue;
    }
    fail(FaultKind::kRemote, *current, act.where, [&] {
      return "the block ends without having waited for what " + name_of(act.clock) +
             " does to its shared memory";
    });
  }
}

void Machine::end_cluster_phase_if_complete(Cluster& cluster) {
  if (cluster.missing > 0) return;
  ++cluster.phase;
  cluster.missing = cluster.alive;
  for (Thread* thread : cluster.waiting) ready_.push_back(thread);
  cluster.waiting.clear();
}

// Switched off, it still counts, but shows no mbarriers.
void Machine::cluster_arrive(Where where) {
  const bool shows = on(SiteKind::kBarrier, where);
  meet(
      "barrier.cluster.arrive", current->warp->alive, nullptr, where,
      [&](Warp& warp, uint32_t lanes) {
        Cluster& cluster = *current->block->cluster;
        report_.counters.barriers += static_cast<uint64_t>(std::popcount(lanes));
        for (; lanes != 0; lanes &= lanes - 1) {
          Thread& thread = *warp.lanes[std::countr_zero(lanes)];
          if (thread.arrived_phase > thread.waited_phase || thread.arrived_phase == cluster.phase) {
            fail(FaultKind::kDivergence, thread, where, [] {
              return std::string("arrives at the cluster's barrier again without having waited");
            });
          }
          thread.arrived_phase = cluster.phase;
          --cluster.missing;
          if (!shows) continue;
          for (auto& [offset, barrier] : thread.block->mbarriers) {
            if (barrier.maker == &thread && barrier.fenced && barrier.shown_phase == 0) {
              barrier.shown_phase = cluster.phase;
            }
          }
        }
        end_cluster_phase_if_complete(cluster);
      });
}

// Switched off, it neither waits nor sees what was shown.
void Machine::cluster_wait(Where where) {
  const bool waits = on(SiteKind::kBarrier, where);
  meet("barrier.cluster.wait", current->warp->alive, nullptr, where, [](Warp&, uint32_t) {});
  Thread* self = current;
  Cluster& cluster = *self->block->cluster;
  if (self->arrived_phase <= self->waited_phase) {
    fail(FaultKind::kDivergence, *self, where,
         [] { return std::string("waits at the cluster's barrier without having arrived"); });
  }
  self->waited_phase = self->arrived_phase;
  if (!waits) return;
  if (cluster.phase == self->arrived_phase) {
    self->waits_in = "the cluster's barrier";
    self->waits_at = where;
    cluster.waiting.push_back(self);
    wait_here();
  }
  self->seen_phase = self->arrived_phase;
}

}  // namespace deltad::emulator
