// What a pool of adapters is and what its operations tried: plain data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace deltad {

struct PoolAdapter {
  std::string name;
  std::string member;       // its digest
  double single_score = 0;  // of the adapter as it was added: the share of questions it answers
  double score = 0;         // of its member now
  int64_t questions = 0;    // in its evaluation set
  // score / single_score; 1 for an adapter that answered nothing to begin with.
  double share() const { return single_score > 0 ? score / single_score : 1; }
};

struct PoolMember {
  std::string digest, path;
  int64_t bytes = 0;  // of the file
  int64_t rank = 0;   // the largest of its modules
  int bits = 16;
  std::vector<std::string> adapters;  // names, in the order in which they came
};

struct PoolView {
  int64_t budget = 0, bytes = 0;
  std::vector<PoolAdapter> adapters;  // by name
  std::vector<PoolMember> members;    // by digest

  const PoolAdapter* adapter(const std::string& name) const;
  const PoolMember* member(const std::string& digest) const;
};

enum class PoolStep { kStore, kShare, kEightBits, kRank, kFourBits, kAverage, kOpcm };
const char* pool_step_name(PoolStep step);  // "store", "share", "8 bits", "rank", …

// One candidate: a member in a new form, or two merged.
struct PoolTrial {
  PoolStep step = PoolStep::kStore;
  std::vector<std::string> adapters;  // that the candidate would serve
  double similarity = 0;              // of the two that are merged
  double kept_energy = 1;             // of ‖BA‖², where the rank was cut
  int64_t bytes_before = 0;           // of what the candidate replaces
  int64_t bytes_after = 0;
  int bits = 16;
  int64_t rank = 0;
  std::vector<PoolAdapter> scores;  // of its adapters, with the candidate's digest as member
  bool accepted = false;
  std::string reason;  // why not
};

struct PoolReport {
  std::string operation;  // "add NAME", "budget"
  bool accepted = false;
  int64_t budget = 0, bytes_before = 0, bytes_after = 0;  // of the whole pool
  double single_score = 0;                                // of the newcomer
  std::vector<PoolTrial> trials;                          // in the order in which they were tried
};

// One line a trial.
std::string pool_report_text(const PoolReport& report);

}  // namespace deltad
