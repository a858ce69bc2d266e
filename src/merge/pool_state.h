// What a pool of adapters durably is, and the folder that holds it:
//
//   pool.json                          the state; everything else is there because it says so
//   members/DIGEST.lora.safetensors    one file a member
//   questions/DIGEST.jsonl             one file an evaluation set
//   candidates/                        what an operation is working on; worthless after a crash
//
// A change writes and syncs the new files first, then replaces pool.json (written aside, synced,
// renamed, folder synced), and only then removes files that are no longer named: whatever step a
// crash comes at, pool.json is the old or the new one and all that it names is there. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "io/durable_folder.h"
#include "merge/pool_report.h"

namespace deltad {

struct StoredMember {
  int64_t bytes = 0, rank = 0;
  int bits = 16;
  std::vector<std::string> adapters;  // in the order in which they came
  // How it was merged: of how many adapters (those removed since included), the λ of OPCM, and the
  // sum of the norms of their task vectors.
  int64_t held = 1;
  double lambda = 1, norm_sum = 0;

  bool operator==(const StoredMember&) const = default;
};

struct StoredAdapter {
  std::string member, questions;  // digests
  int64_t count = 0;              // of questions
  double single_score = 0;

  bool operator==(const StoredAdapter&) const = default;
};

struct PoolState {
  std::string base_digest;
  // budget: in force. configured: what the configuration said when it was set.
  int64_t budget = 0, configured = 0;
  std::map<std::string, StoredMember> members;                   // by digest
  std::map<std::string, StoredAdapter> adapters;                 // by name
  std::map<std::pair<std::string, std::string>, double> scores;  // of a member on a set

  bool operator==(const PoolState&) const = default;

  int64_t bytes() const;
  std::string json() const;
  // kInvalidArgument if anything does not fit together.
  static Result<PoolState> parse(const std::string& json, const std::string& where);
};

class PoolStore {
 public:
  // Reads the state (an empty one if there is none), then removes files that it does not name. A
  // state that was made for another base or does not fit together is an error and nothing is
  // touched.
  static Result<PoolStore> open(DurableFolder& folder, const std::string& base_digest,
                                int64_t configured_budget);

  const PoolState& state() const { return state_; }
  std::string member_path(const std::string& digest) const;
  // Where a candidate is written before it becomes a member.
  std::string candidate_path(const std::string& digest) const;
  Result<std::string> questions(const std::string& digest);

  // Files of new members lie at their candidate_path. After an error the state is the old one.
  Status commit(PoolState next, const std::map<std::string, std::string>& new_questions);
  // Removes the files that the state does not name.
  void clean();

 private:
  explicit PoolStore(DurableFolder& folder) : folder_(&folder) {}
  Status put_members(const PoolState& next);
  Status put_questions(const PoolState& next, const std::map<std::string, std::string>& contents);

  void remove(const std::string& name);

  DurableFolder* folder_;
  PoolState state_;
  bool durable_ = false;  // that state_ would be found after a power cut
};

}  // namespace deltad
