#include "merge/pool_state.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/log.h"
#include "delta/variant_name.h"
#include "delta/variant_path.h"

namespace deltad {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kVersion = 1;
constexpr const char* kState = "pool.json";
constexpr const char* kNewState = "pool.json.new";
constexpr const char* kMembers = "members";
constexpr const char* kQuestions = "questions";
constexpr const char* kCandidates = "candidates";

bool is_digest(const std::string& text) {
  return text.size() == 32 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

std::string member_file(const std::string& digest) { return digest + kAdapterSuffix; }
std::string questions_file(const std::string& digest) { return digest + ".jsonl"; }

// Throws what nlohmann throws.
PoolState read_state(const Json& json) {
  PoolState state;
  state.base_digest = json.at("base_digest").get<std::string>();
  state.budget = json.at("budget").get<int64_t>();
  state.configured = json.at("configured_budget").get<int64_t>();
  for (const Json& item : json.at("members")) {
    StoredMember member;
    member.bytes = item.at("bytes").get<int64_t>();
    member.rank = item.at("rank").get<int64_t>();
    member.bits = item.at("bits").get<int>();
    member.adapters = item.at("adapters").get<std::vector<std::string>>();
    member.held = item.at("held").get<int64_t>();
    member.lambda = item.at("lambda").get<double>();
    member.norm_sum = item.at("norm_sum").get<double>();
    member.kept_energy = item.at("kept_energy").get<double>();
    state.members[item.at("digest").get<std::string>()] = std::move(member);
  }
  for (const Json& item : json.at("adapters")) {
    StoredAdapter adapter;
    adapter.member = item.at("member").get<std::string>();
    adapter.questions = item.at("questions").get<std::string>();
    adapter.count = item.at("count").get<int64_t>();
    adapter.single_score = item.at("single_score").get<double>();
    state.adapters[item.at("name").get<std::string>()] = std::move(adapter);
  }
  for (const Json& item : json.at("scores"))
    state.scores[{item.at("member").get<std::string>(), item.at("questions").get<std::string>()}] =
        item.at("score").get<double>();
  return state;
}

std::string misfit(const PoolState& state) {
  std::set<std::string> served;
  for (const auto& [digest, member] : state.members) {
    if (!is_digest(digest)) return fmt::format("'{}' is no digest", digest);
    if (member.adapters.empty()) return fmt::format("member {} serves no adapter", digest);
    if (member.bytes <= 0 || member.held < 1)
      return fmt::format("member {} has {} bytes of {} adapters", digest, member.bytes,
                         member.held);
    for (const std::string& name : member.adapters) {
      const auto at = state.adapters.find(name);
      if (at == state.adapters.end() || at->second.member != digest || !served.insert(name).second)
        return fmt::format("adapter '{}' and member {} do not name each other once", name, digest);
    }
  }
  for (const auto& [name, adapter] : state.adapters) {
    if (!check_variant_name(name).ok()) return fmt::format("'{}' can name no adapter", name);
    if (served.count(name) == 0) return fmt::format("adapter '{}' has no member", name);
    if (!is_digest(adapter.questions) ||
        state.scores.count({adapter.member, adapter.questions}) == 0)
      return fmt::format("adapter '{}' has no score", name);
  }
  return "";
}

}  // namespace

int64_t PoolState::bytes() const {
  int64_t sum = 0;
  for (const auto& [digest, member] : members) sum += member.bytes;
  return sum;
}

std::string PoolState::json() const {
  Json json = {{"version", kVersion},
               {"base_digest", base_digest},
               {"budget", budget},
               {"configured_budget", configured}};
  json["members"] = Json::array();
  for (const auto& [digest, m] : members)
    json["members"].push_back({{"digest", digest},
                               {"bytes", m.bytes},
                               {"rank", m.rank},
                               {"bits", m.bits},
                               {"adapters", m.adapters},
                               {"held", m.held},
                               {"lambda", m.lambda},
                               {"norm_sum", m.norm_sum},
                               {"kept_energy", m.kept_energy}});
  json["adapters"] = Json::array();
  for (const auto& [name, a] : adapters)
    json["adapters"].push_back({{"name", name},
                                {"member", a.member},
                                {"questions", a.questions},
                                {"count", a.count},
                                {"single_score", a.single_score}});
  json["scores"] = Json::array();
  for (const auto& [key, score] : scores)
    json["scores"].push_back({{"member", key.first}, {"questions", key.second}, {"score", score}});
  return json.dump(1) + "\n";
}

Result<PoolState> PoolState::parse(const std::string& text, const std::string& where) {
  try {
    const Json json = Json::parse(text);
    const int version = json.at("version").get<int>();
    if (version != kVersion)
      return invalid_argument(
          fmt::format("{}: its version is {}, expected {}", where, version, kVersion));
    PoolState state = read_state(json);
    const std::string wrong = misfit(state);
    if (wrong.empty()) return state;
    return invalid_argument(fmt::format("{}: {}", where, wrong));
  } catch (const nlohmann::json::exception& error) {
    return invalid_argument(fmt::format("{}: not the state of a pool: {}", where, error.what()));
  }
}

Result<PoolStore> PoolStore::open(DurableFolder& folder, const std::string& base_digest,
                                  int64_t configured_budget) {
  PoolStore store(folder);
  const std::string where = folder.path() + "/" + kState;
  auto text = folder.read(kState);
  if (!text.ok() && text.status().code() != Code::kNotFound) return text.status();
  if (text.ok()) {
    ASSIGN_OR_RETURN(store.state_, PoolState::parse(*text, where));
    if (store.state_.base_digest != base_digest)
      return invalid_argument(
          fmt::format("{}: the pool was made for the base with digest {}, and this one has {}: "
                      "choose another folder",
                      where, store.state_.base_digest, base_digest));
  }
  for (const char* name : {kMembers, kQuestions, kCandidates})
    RETURN_IF_ERROR(folder.make_folder(name));
  RETURN_IF_ERROR(folder.sync_folder(""));  // as durable as the files that will lie in them
  store.durable_ = text.ok();
  store.clean();
  store.state_.base_digest = base_digest;
  if (store.state_.configured != configured_budget) {
    store.state_.budget = configured_budget;
    store.state_.configured = configured_budget;
  }
  return store;
}

std::string PoolStore::member_path(const std::string& digest) const {
  return fmt::format("{}/{}/{}", folder_->path(), kMembers, member_file(digest));
}

std::string PoolStore::candidate_path(const std::string& digest) const {
  return fmt::format("{}/{}/{}", folder_->path(), kCandidates, member_file(digest));
}

Result<std::string> PoolStore::questions(const std::string& digest) {
  return folder_->read(fmt::format("{}/{}", kQuestions, questions_file(digest)));
}

Status PoolStore::put_members(const PoolState& next) {
  bool any = false;
  for (const auto& [digest, member] : next.members) {
    if (state_.members.count(digest) != 0) continue;
    const std::string from = fmt::format("{}/{}", kCandidates, member_file(digest));
    RETURN_IF_ERROR(folder_->sync(from));
    RETURN_IF_ERROR(folder_->rename(from, fmt::format("{}/{}", kMembers, member_file(digest))));
    any = true;
  }
  return any ? folder_->sync_folder(kMembers) : Status();
}

Status PoolStore::put_questions(const PoolState& next,
                                const std::map<std::string, std::string>& contents) {
  std::set<std::string> there;
  for (const auto& [name, adapter] : state_.adapters) there.insert(adapter.questions);
  bool any = false;
  for (const auto& [name, adapter] : next.adapters) {
    if (!there.insert(adapter.questions).second) continue;
    const std::string file = fmt::format("{}/{}", kQuestions, questions_file(adapter.questions));
    RETURN_IF_ERROR(folder_->write(file, contents.at(adapter.questions)));
    RETURN_IF_ERROR(folder_->sync(file));
    any = true;
  }
  return any ? folder_->sync_folder(kQuestions) : Status();
}

Status PoolStore::commit(PoolState next, const std::map<std::string, std::string>& new_questions) {
  RETURN_IF_ERROR(put_members(next));
  RETURN_IF_ERROR(put_questions(next, new_questions));
  RETURN_IF_ERROR(folder_->write(kNewState, next.json()));
  RETURN_IF_ERROR(folder_->sync(kNewState));
  RETURN_IF_ERROR(folder_->rename(kNewState, kState));
  state_ = std::move(next);
  // From here on the change has happened. If the rename itself cannot be made durable, a power cut
  // may bring the old state back: its files stay.
  const Status synced = folder_->sync_folder("");
  durable_ = synced.ok();
  if (!durable_)
    log_warning("the pool's new state may not survive a power cut: {}", synced.message());
  return {};
}

void PoolStore::clean() {
  if (!durable_) return;
  const auto files = folder_->list("");
  if (files.ok() && std::count(files->begin(), files->end(), kNewState) > 0) remove(kNewState);
  std::set<std::string> named;
  for (const auto& [digest, member] : state_.members)
    named.insert(fmt::format("{}/{}", kMembers, member_file(digest)));
  for (const auto& [name, adapter] : state_.adapters)
    named.insert(fmt::format("{}/{}", kQuestions, questions_file(adapter.questions)));
  for (const char* folder : {kMembers, kQuestions, kCandidates}) {
    const auto found = folder_->list(folder);
    if (!found.ok()) continue;
    for (const std::string& file : *found) {
      const std::string path = fmt::format("{}/{}", folder, file);
      // Only what a pool may have written.
      if (is_digest(file.substr(0, file.find('.'))) && named.count(path) == 0) remove(path);
    }
  }
}

void PoolStore::remove(const std::string& name) {
  const Status removed = folder_->remove(name);
  if (!removed.ok()) log_warning("{}", removed.message());
}

}  // namespace deltad
