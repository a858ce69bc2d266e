#include "server/admin/pool_actions.h"

#include <charconv>
#include <nlohmann/json.hpp>

#include "server/admin/fields.h"
#include "server/admin/pool_json.h"

namespace deltad {
namespace {

ApiError pool_error(const Status& status) {
  if (status.ok()) return {};
  ApiError error = api_error(status);
  if (status.code() == Code::kNotFound) {
    error.param = "name";
    error.code = "not_found";
  }
  return error;
}

ApiError accept(const Result<PoolOperation>& operation, AdminAnswer* answer) {
  if (!operation.ok()) return pool_error(operation.status());
  answer->status = 202;
  answer->json = pool_operation_json(*operation, true);
  return {};
}

ApiError add(PoolService& pool, std::string_view body, AdminAnswer* answer) {
  PoolAddFields fields;
  RETURN_IF_API_ERROR(read_pool_add(body, &fields));
  answer->variant = fields.name;
  return accept(pool.add(fields.name, fields.path, fields.questions), answer);
}

ApiError set_budget(PoolService& pool, std::string_view body, AdminAnswer* answer) {
  int64_t bytes = 0;
  RETURN_IF_API_ERROR(read_pool_budget(body, &bytes));
  return accept(pool.set_budget(bytes), answer);
}

ApiError show(const PoolService& pool, const std::string& name, AdminAnswer* answer) {
  const PoolView view = pool.view();
  const PoolAdapter* adapter = view.adapter(name);
  if (adapter == nullptr)
    return pool_error(not_found("the adapter pool has no adapter of this name"));
  answer->json = pool_adapter_json(view, *adapter);
  return {};
}

ApiError read_id(const std::string& text, uint64_t* id) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *id);
  if (error != std::errc() || end != text.data() + text.size())
    return pool_error(not_found("an operation of the adapter pool is a number"));
  return {};
}

ApiError show_operation(const PoolService& pool, const std::string& text, AdminAnswer* answer) {
  uint64_t id = 0;
  RETURN_IF_API_ERROR(read_id(text, &id));
  const Result<PoolOperation> operation = pool.operation(id);
  if (!operation.ok()) return pool_error(operation.status());
  answer->json = pool_operation_json(*operation, true);
  return {};
}

}  // namespace

ApiError perform_on_pool(PoolService* pool, const AdminRoute& route, std::string_view body,
                         AdminAnswer* answer) {
  if (pool == nullptr) {
    ApiError error =
        api_error(404, "This server has no adapter pool: its config has no adapter_pool.folder.");
    error.code = "no_adapter_pool";
    return error;
  }
  switch (route.action) {
    case AdminAction::kPool:
      answer->json = pool_json(pool->view(), pool->operations());
      return {};
    case AdminAction::kPoolAdd:
      return add(*pool, body, answer);
    case AdminAction::kPoolGet:
      return show(*pool, route.name, answer);
    case AdminAction::kPoolRemove:
      RETURN_IF_API_ERROR(read_nothing(body));
      return accept(pool->remove(route.name), answer);
    case AdminAction::kPoolBudget:
      return set_budget(*pool, body, answer);
    case AdminAction::kPoolOperation:
      return show_operation(*pool, route.name, answer);
    case AdminAction::kPoolCancel: {
      RETURN_IF_API_ERROR(read_nothing(body));
      uint64_t id = 0;
      RETURN_IF_API_ERROR(read_id(route.name, &id));
      return accept(pool->cancel(id), answer);
    }
    default:
      break;
  }
  return api_error(internal_error("an action on the adapter pool that nobody performs"));
}

}  // namespace deltad
