#include "server/admin/pool_json.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

namespace deltad {
namespace {

double milli(double value) { return std::round(value * 1e3) / 1e3; }
double rounded(double value) { return std::round(value * 1e6) / 1e6; }

Json score_json(const PoolAdapter& adapter) {
  Json json;
  json["name"] = adapter.name;
  json["member"] = pool_member_name(adapter.member);
  json["score"] = rounded(adapter.score);
  json["single_score"] = rounded(adapter.single_score);
  json["share_kept"] = rounded(adapter.share());
  json["questions"] = adapter.questions;
  return json;
}

Json member_json(const PoolMember& member) {
  Json json;
  json["name"] = pool_member_name(member.digest);
  json["digest"] = member.digest;
  json["path"] = member.path;
  json["bytes"] = member.bytes;
  json["bits"] = member.bits;
  json["rank"] = member.rank;
  json["adapters"] = member.adapters;
  return json;
}

Json trial_json(const PoolTrial& trial) {
  const bool merged = trial.step == PoolStep::kAverage || trial.step == PoolStep::kOpcm ||
                      trial.step == PoolStep::kShare;
  Json json;
  json["step"] = pool_step_name(trial.step);
  json["adapters"] = trial.adapters;
  json["similarity"] = merged ? Json(rounded(trial.similarity)) : Json();
  json["kept_energy"] = rounded(trial.kept_energy);
  json["bytes_before"] = trial.bytes_before;
  json["bytes_after"] = trial.bytes_after;
  json["bits"] = trial.bits;
  json["rank"] = trial.rank;
  json["scores"] = Json::array();
  for (const PoolAdapter& score : trial.scores) json["scores"].push_back(score_json(score));
  json["accepted"] = trial.accepted;
  json["reason"] = trial.reason.empty() ? Json() : Json(trial.reason);
  return json;
}

Json report_json(const PoolReport& report) {
  Json json;
  json["accepted"] = report.accepted;
  json["budget_bytes"] = report.budget;
  json["bytes_before"] = report.bytes_before;
  json["bytes_after"] = report.bytes_after;
  json["single_score"] = rounded(report.single_score);
  json["trials"] = Json::array();
  for (const PoolTrial& trial : report.trials) json["trials"].push_back(trial_json(trial));
  return json;
}

// An operation has no answer of its own to carry an HTTP status: it is said here. A full pool is a
// 507 (Insufficient Storage), not the 429 of a busy server: trying again does not help.
Json error_of(const Status& status) {
  if (status.ok()) return {};
  Json json;
  json["status"] = status.code() == Code::kResourceExhausted ? 507 : api_error(status).status;
  json["code"] = code_name(status.code());
  json["message"] = status.message();
  return json;
}

}  // namespace

Json pool_adapter_json(const PoolView& view, const PoolAdapter& adapter) {
  Json json;
  json["object"] = "pool_adapter";
  json.update(score_json(adapter));
  if (const PoolMember* member = view.member(adapter.member))
    json["served_by"] = member_json(*member);
  return json;
}

Json pool_operation_json(const PoolOperation& operation, bool with_report) {
  const bool began = operation.started != TimePoint{};
  const bool over = operation.ended != TimePoint{};
  Json json;
  json["object"] = "pool_operation";
  json["id"] = operation.id;
  json["operation"] = pool_operation_kind_name(operation.kind);
  json["name"] = operation.name.empty() ? Json() : Json(operation.name);
  json["bytes"] = operation.kind == PoolOperationKind::kBudget ? Json(operation.budget) : Json();
  json["state"] = pool_operation_state_name(operation.state);
  json["doing"] = operation.doing.empty() ? Json() : Json(operation.doing);
  json["created"] = operation.created;
  json["seconds"] = !began ? Json()
                           : Json(milli(seconds((over ? operation.ended : Clock::real().now()) -
                                                operation.started)));
  json["error"] = error_of(operation.status);
  if (with_report) json["report"] = report_json(operation.report);
  return json;
}

Json pool_json(const PoolView& view, const std::vector<PoolOperation>& operations) {
  Json json;
  json["object"] = "adapter_pool";
  json["budget_bytes"] = view.budget;
  json["used_bytes"] = view.bytes;
  json["adapters"] = Json::array();
  for (const PoolAdapter& adapter : view.adapters) json["adapters"].push_back(score_json(adapter));
  json["members"] = Json::array();
  for (const PoolMember& member : view.members) json["members"].push_back(member_json(member));
  json["operations"] = Json::array();
  for (const PoolOperation& operation : operations)
    json["operations"].push_back(pool_operation_json(operation, false));
  return json;
}

}  // namespace deltad
