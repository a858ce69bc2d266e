// PoolPlan: one operation of a pool before it has happened: a copy of the state that is changed
// step by step, with each new member lying as a candidate file. Each step is kept only if it passes
// the gate. Nothing of it counts until the pool commits next(). The pool's thread.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "delta/adapter_factors.h"
#include "delta/packed_adapter.h"
#include "merge/adapter_pool.h"
#include "merge/pool_forms.h"
#include "merge/pool_state.h"

namespace deltad {

// What a pool's plans share and keep between operations.
struct PoolWorld {
  const PoolOptions& options;
  const WeightTable& table;
  PoolStore& store;
  PoolScorer& scorer;
  std::map<std::string, std::vector<Question>>& questions;        // by digest
  std::map<std::pair<std::string, std::string>, double>& scores;  // of a member on a set
};

class PoolPlan {
 public:
  PoolPlan(const PoolWorld& world, const PoolProgress& progress, PoolReport* report);

  PoolState& next() { return next_; }

  // Scores the newcomer alone and stores it in 16 bits, or merges it at once if K-Merge++ says so.
  // The budget is not looked at. questions: the digest of its set, known to the world.
  Status add(const std::string& name, const std::string& path, const AdapterFactorSet& factors,
             const std::string& questions);
  // Makes room until the budget holds: shrinks, then merges. kResourceExhausted if it cannot.
  Status fit();

 private:
  struct Candidate {
    std::string digest;
    StoredMember member;
    double worst = 0;  // share kept among its adapters
  };

  void say(const std::string& doing) const;
  Result<AdapterFactorSet> factors_of(const std::string& digest) const;
  std::string path_of(const std::string& digest) const;
  Result<double> score(const std::string& path, const std::string& digest,
                       const std::string& questions, const std::string& name);
  Status write(const PackedAdapter& packed, StoredMember* member);
  // If a member is the same file already, the candidate serves its adapters too. True if so.
  bool join_equal(const std::vector<std::string>& old, Candidate* candidate) const;
  // Scores the candidate for each of its adapters: trial says with what result.
  Status gate(const Candidate& candidate, PoolTrial* trial);
  void replace(const std::vector<std::string>& old, const Candidate& candidate);

  Status shrink(PoolStep step);
  // The digest of what stands in its place then: the same one if the step was not kept.
  Result<std::string> shrink_member(PoolStep step, const std::string& digest);
  Status merge_newcomer(double at_least, bool* done);
  Status merge_any(bool* done);
  // Of `from` into `into`, by the ways that the options name; *done: one of them was kept.
  Status merge(const std::string& into, const std::string& from, double similarity, bool* done);
  Status try_merge(PoolStep step, const std::string& into, const std::string& from,
                   double similarity, std::optional<Candidate>* best, size_t* best_trial);
  Result<double> similarity_of(const std::string& x, const std::string& y) const;
  Status no_room() const;

  const PoolWorld& world_;
  const PoolProgress& progress_;
  PoolReport* const report_;
  PoolState next_;
  std::string newcomer_;  // its digest, while it stands alone
};

}  // namespace deltad
