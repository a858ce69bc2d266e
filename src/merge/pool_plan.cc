#include "merge/pool_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "delta/lora_adapter.h"
#include "io/file_reader.h"

namespace deltad {
namespace {

constexpr double kRounding = 1e-9;  // shares are quotients of counts

MergeHistory history_of(const StoredMember& member) {
  return {member.held, member.lambda, member.norm_sum};
}

double share_of(double score, double single) { return single > 0 ? score / single : 1; }

}  // namespace

PoolPlan::PoolPlan(const PoolWorld& world, const PoolProgress& progress, PoolReport* report)
    : world_(world), progress_(progress), report_(report), next_(world.store.state()) {
  report_->budget = next_.budget;
  report_->bytes_before = report_->bytes_after = next_.bytes();
}

void PoolPlan::say(const std::string& doing) const {
  if (progress_) progress_(doing, *report_);
}

std::string PoolPlan::path_of(const std::string& digest) const {
  return world_.store.state().members.count(digest) != 0 ? world_.store.member_path(digest)
                                                         : world_.store.candidate_path(digest);
}

Result<AdapterFactorSet> PoolPlan::factors_of(const std::string& digest) const {
  ASSIGN_OR_RETURN(const LoraAdapter adapter, LoraAdapter::open(path_of(digest), world_.table));
  return read_factors(adapter);
}

Result<double> PoolPlan::score(const std::string& path, const std::string& digest,
                               const std::string& questions, const std::string& name) {
  const auto known = world_.scores.find({digest, questions});
  if (!digest.empty() && known != world_.scores.end()) return known->second;
  const std::vector<Question>& set = world_.questions.at(questions);
  say(fmt::format("scoring {} on {} questions", name, set.size()));
  ASSIGN_OR_RETURN(const double score, world_.scorer.score(path, set));
  if (!digest.empty()) world_.scores[{digest, questions}] = score;
  return score;
}

Status PoolPlan::write(const PackedAdapter& packed, StoredMember* member) {
  const std::string path = path_of(packed.digest);
  if (file_exists(path)) {
    ASSIGN_OR_RETURN(const auto file, FileReader::open(path));
    member->bytes = file->size();
  } else {
    ASSIGN_OR_RETURN(member->bytes, write_packed_adapter(packed, path));
  }
  member->bits = packed.bits;
  member->rank = 0;
  for (const PackedAdapter::Module& module : packed.modules)
    member->rank = std::max(member->rank, module.rank);
  return {};
}

Status PoolPlan::gate(const Candidate& candidate, PoolTrial* trial) {
  trial->accepted = true;
  for (const std::string& name : candidate.member.adapters) {
    const StoredAdapter& adapter = next_.adapters.at(name);
    ASSIGN_OR_RETURN(const double got,
                     score(path_of(candidate.digest), candidate.digest, adapter.questions, name));
    trial->scores.push_back({name, candidate.digest, adapter.single_score, got, adapter.count});
    const double share = share_of(got, adapter.single_score);
    if (share >= world_.options.keep_share - kRounding) continue;
    trial->accepted = false;
    trial->reason =
        fmt::format("{} would keep {:.1f} % of its score alone, at least {:.1f} % are asked", name,
                    100 * share, 100 * world_.options.keep_share);
    return {};  // the others need not be asked
  }
  return {};
}

bool PoolPlan::join_equal(const std::vector<std::string>& old, Candidate* candidate) const {
  const auto same = next_.members.find(candidate->digest);
  if (same == next_.members.end() || std::count(old.begin(), old.end(), candidate->digest) > 0)
    return false;
  std::vector<std::string> all = same->second.adapters;
  all.insert(all.end(), candidate->member.adapters.begin(), candidate->member.adapters.end());
  candidate->member = same->second;
  candidate->member.adapters = std::move(all);
  return true;
}

void PoolPlan::replace(const std::vector<std::string>& old, const Candidate& candidate) {
  for (const std::string& digest : old) next_.members.erase(digest);
  next_.members[candidate.digest] = candidate.member;
  for (const std::string& name : candidate.member.adapters)
    next_.adapters[name].member = candidate.digest;
  report_->bytes_after = next_.bytes();
}

Status PoolPlan::add(const std::string& name, const std::string& path,
                     const AdapterFactorSet& factors, const std::string& questions) {
  say(fmt::format("packing {}", name));
  const PackedAdapter packed = pack_adapter(16, next_.base_digest, factors);
  Candidate candidate;
  candidate.digest = packed.digest;
  candidate.member.adapters = {name};
  candidate.member.norm_sum = norm_of(low_rank_of(factors));
  RETURN_IF_ERROR(write(packed, &candidate.member));

  StoredAdapter& adapter = next_.adapters[name];
  adapter.questions = questions;
  adapter.count = static_cast<int64_t>(world_.questions.at(questions).size());
  // If 16 bits hold the adapter as it is, the packed file is the adapter.
  const bool exact = is_bf16(factors);
  ASSIGN_OR_RETURN(adapter.single_score,
                   exact ? score(path_of(packed.digest), packed.digest, questions, name)
                         : score(path, "", questions, name));
  report_->single_score = adapter.single_score;

  PoolTrial trial;
  trial.bits = 16;
  trial.rank = candidate.member.rank;
  const bool shared = join_equal({}, &candidate);  // the very same adapter under another name
  if (shared) trial.step = PoolStep::kShare;
  trial.adapters = candidate.member.adapters;
  trial.bytes_after = candidate.member.bytes;
  RETURN_IF_ERROR(gate(candidate, &trial));
  report_->trials.push_back(trial);
  if (!trial.accepted) return resource_exhausted(fmt::format("in 16 bits {}", trial.reason));
  replace({}, candidate);
  if (shared) return {};
  newcomer_ = packed.digest;
  if (!world_.options.store_below) return {};
  bool done = false;
  return merge_newcomer(*world_.options.store_below, &done);
}

Status PoolPlan::fit() {
  const auto fits = [&] { return next_.bytes() <= next_.budget; };
  if (world_.options.policy == PoolPolicy::kShrinkFirst)
    for (const PoolStep step : {PoolStep::kEightBits, PoolStep::kRank, PoolStep::kFourBits})
      if (!fits()) RETURN_IF_ERROR(shrink(step));
  while (!fits()) {
    bool done = false;
    if (newcomer_.empty())
      RETURN_IF_ERROR(merge_any(&done));
    else
      RETURN_IF_ERROR(merge_newcomer(-2, &done));
    if (!done) return no_room();
  }
  return {};
}

Status PoolPlan::no_room() const {
  std::string tried;
  for (const PoolTrial& trial : report_->trials)
    if (!trial.accepted)
      tried += fmt::format("\n  {} of {}: {}", pool_step_name(trial.step),
                           fmt::join(trial.adapters, ", "), trial.reason);
  return resource_exhausted(fmt::format(
      "{} bytes are needed, the budget is {}, and nothing more can be shrunk or merged "
      "without losing quality:{}",
      next_.bytes(), next_.budget, tried.empty() ? " there is no other member" : tried));
}

// Each member once, the largest first, until there is room.
Status PoolPlan::shrink(PoolStep step) {
  std::set<std::string> tried;
  while (next_.bytes() > next_.budget) {
    const std::string* largest = nullptr;
    for (const auto& [digest, member] : next_.members) {
      const bool fits_step = step == PoolStep::kEightBits  ? member.bits > 8
                             : step == PoolStep::kFourBits ? member.bits > 4
                                                           : member.rank > 1;
      if (!fits_step || tried.count(digest) != 0) continue;
      if (largest == nullptr || member.bytes > next_.members.at(*largest).bytes) largest = &digest;
    }
    if (largest == nullptr) return {};
    const std::string digest = *largest;
    tried.insert(digest);
    ASSIGN_OR_RETURN(std::string now, shrink_member(step, digest));
    tried.insert(std::move(now));
  }
  return {};
}

Result<std::string> PoolPlan::shrink_member(PoolStep step, const std::string& digest) {
  const StoredMember& old = next_.members.at(digest);
  ASSIGN_OR_RETURN(AdapterFactorSet factors, factors_of(digest));
  PoolTrial trial;
  trial.step = step;
  trial.adapters = old.adapters;
  trial.bytes_before = old.bytes;
  int bits = step == PoolStep::kEightBits ? 8 : 4;
  if (step == PoolStep::kRank) {
    bits = old.bits;
    // The bound is for all cuts together.
    const double may_drop = 1 - (1 - world_.options.max_dropped_energy) / old.kept_energy;
    if (may_drop <= 0) return digest;
    ASSIGN_OR_RETURN(CutSet cut, cut_rank(low_rank_of(factors), may_drop));
    if (!cut.changed) return digest;
    trial.kept_energy = cut.kept_energy;
    factors = factors_of_set(cut.set);
  }
  const PackedAdapter packed = pack_adapter(bits, next_.base_digest, factors);
  Candidate candidate{packed.digest, old, 0};
  candidate.member.kept_energy *= trial.kept_energy;
  RETURN_IF_ERROR(write(packed, &candidate.member));
  const bool joined = join_equal({digest}, &candidate);
  trial.adapters = candidate.member.adapters;
  trial.bits = bits;
  trial.rank = candidate.member.rank;
  trial.bytes_after = candidate.member.bytes;
  RETURN_IF_ERROR(gate(candidate, &trial));
  report_->trials.push_back(trial);
  if (!trial.accepted) return digest;
  if (newcomer_ == digest) newcomer_ = joined ? "" : candidate.digest;
  replace({digest}, candidate);
  return candidate.digest;
}

Result<double> PoolPlan::similarity_of(const std::string& x, const std::string& y) const {
  ASSIGN_OR_RETURN(const AdapterFactorSet mine, factors_of(x));
  ASSIGN_OR_RETURN(const AdapterFactorSet theirs, factors_of(y));
  return similarity(low_rank_of(mine), low_rank_of(theirs));
}

// With the members in the order of their similarity, while that is at_least so much.
Status PoolPlan::merge_newcomer(double at_least, bool* done) {
  std::vector<std::pair<double, std::string>> others;
  for (const auto& [digest, member] : next_.members) {
    if (digest == newcomer_) continue;
    ASSIGN_OR_RETURN(const double alike, similarity_of(newcomer_, digest));
    if (alike >= at_least) others.emplace_back(-alike, digest);
  }
  std::sort(others.begin(), others.end());
  for (const auto& [alike, digest] : others) {
    RETURN_IF_ERROR(merge(digest, newcomer_, -alike, done));
    if (*done) return {};
  }
  return {};
}

// Any two members, the most alike first; the one that holds fewer goes into the other.
Status PoolPlan::merge_any(bool* done) {
  std::vector<std::tuple<double, std::string, std::string>> pairs;
  for (auto x = next_.members.begin(); x != next_.members.end(); ++x)
    for (auto y = std::next(x); y != next_.members.end(); ++y) {
      ASSIGN_OR_RETURN(const double alike, similarity_of(x->first, y->first));
      const bool x_first = x->second.held >= y->second.held;
      pairs.emplace_back(-alike, (x_first ? x : y)->first, (x_first ? y : x)->first);
    }
  std::sort(pairs.begin(), pairs.end());
  for (const auto& [alike, into, from] : pairs) {
    RETURN_IF_ERROR(merge(into, from, -alike, done));
    if (*done) return {};
  }
  return {};
}

Status PoolPlan::merge(const std::string& into, const std::string& from, double similarity,
                       bool* done) {
  std::optional<Candidate> best;
  size_t best_trial = 0;
  if (world_.options.merge_by != PoolMergeBy::kOpcm)
    RETURN_IF_ERROR(try_merge(PoolStep::kAverage, into, from, similarity, &best, &best_trial));
  if (world_.options.merge_by != PoolMergeBy::kAverage)
    RETURN_IF_ERROR(try_merge(PoolStep::kOpcm, into, from, similarity, &best, &best_trial));
  *done = best.has_value();
  if (!best) return {};
  replace({into, from}, *best);
  newcomer_.clear();
  return {};
}

Status PoolPlan::try_merge(PoolStep step, const std::string& into, const std::string& from,
                           double similarity, std::optional<Candidate>* best, size_t* best_trial) {
  const StoredMember &x = next_.members.at(into), &y = next_.members.at(from);
  ASSIGN_OR_RETURN(const AdapterFactorSet mine, factors_of(into));
  ASSIGN_OR_RETURN(const AdapterFactorSet theirs, factors_of(from));
  const LowRankSet p = low_rank_of(mine), q = low_rank_of(theirs);
  ASSIGN_OR_RETURN(const MergedSet merged,
                   step == PoolStep::kAverage
                       ? merge_average(p, history_of(x), q, history_of(y))
                       : merge_opcm(p, history_of(x), q, history_of(y), world_.options.opcm_share));
  Candidate candidate;
  candidate.member.adapters = x.adapters;
  candidate.member.adapters.insert(candidate.member.adapters.end(), y.adapters.begin(),
                                   y.adapters.end());
  candidate.member.held = merged.history.held;
  candidate.member.lambda = merged.history.lambda;
  candidate.member.norm_sum = merged.history.norm_sum;
  PoolTrial trial;
  trial.step = step;
  trial.adapters = candidate.member.adapters;
  trial.similarity = similarity;
  trial.kept_energy = merged.kept_energy;
  trial.bytes_before = x.bytes + y.bytes;
  const AdapterFactorSet factors = factors_of_set(merged.set);
  const int64_t room = next_.budget - (next_.bytes() - trial.bytes_before);
  // In as many bits as there is room for.
  const bool any_bits = world_.options.policy == PoolPolicy::kShrinkFirst;
  for (const int bits : {16, 8, 4}) {
    const PackedAdapter packed = pack_adapter(bits, next_.base_digest, factors);
    candidate.digest = packed.digest;
    RETURN_IF_ERROR(write(packed, &candidate.member));
    if (candidate.member.bytes <= room || !any_bits) break;
  }
  join_equal({into, from}, &candidate);
  trial.adapters = candidate.member.adapters;
  trial.bits = candidate.member.bits;
  trial.rank = candidate.member.rank;
  trial.bytes_after = candidate.member.bytes;
  if (trial.bytes_after > room && trial.bytes_after >= trial.bytes_before)
    trial.reason =
        fmt::format("it takes {} bytes, and there is room for {}", trial.bytes_after, room);
  else
    RETURN_IF_ERROR(gate(candidate, &trial));
  if (trial.accepted) {
    candidate.worst = 1e9;
    for (const PoolAdapter& score : trial.scores)
      candidate.worst = std::min(candidate.worst, score.share());
    if (!*best || candidate.worst > (*best)->worst) {
      if (*best) {
        report_->trials[*best_trial].accepted = false;
        report_->trials[*best_trial].reason = "another way of merging keeps more";
      }
      *best = candidate;
      *best_trial = report_->trials.size();
    } else {
      trial.accepted = false;
      trial.reason = "another way of merging keeps no less";
    }
  }
  report_->trials.push_back(trial);
  return {};
}

}  // namespace deltad
