#include "server/grpc/admin_service.h"

#include <nlohmann/json.hpp>

#include "base/log.h"
#include "server/admin/actions.h"
#include "server/grpc/admin_json.h"
#include "server/grpc/methods.h"
#include "server/grpc/rpc.h"

namespace deltad {
namespace {

constexpr size_t kLongestShown = 256;      // bytes of a name, in a log line
constexpr size_t kSlow = size_t{1} << 30;  // as a request of this size: beside the other calls

struct Job {
  Serving serving;
  AdminRoute route;
  std::string body;
  AdminAnswer answer;
  ApiError error;
};

// The answer is the message, …
Json as_it_is(Json json) { return json; }
// … or its one member.
template <const char* name>
Json under(Json json) {
  Json outer;
  outer[name] = std::move(json);
  return outer;
}
constexpr char kVariant[] = "variant", kOperation[] = "operation", kAdapter[] = "adapter",
               kVariants[] = "variants";
Json as_list(Json json) { return under<kVariants>(std::move(json["data"])); }
Json nothing(Json) { return Json::object(); }

struct Action {
  AdminAction action;
  Json (*shape)(Json);  // HTTP's answer as the message has it
  bool changes, slow;   // worth a line in the log; reads files
};

template <typename In, typename Out>
grpc::ServerUnaryReactor* perform_rpc(const std::shared_ptr<RpcHome>& home,
                                      const KnownMethod& method,
                                      grpc::CallbackServerContext& context, const In& /*in*/,
                                      const Action& action, std::string name, std::string body,
                                      Out* out) {
  auto call = std::make_shared<UnaryRpc<Out>>(out, home, method, *In::descriptor(), context);
  auto job = std::make_shared<Job>();
  job->route.action = action.action;
  job->route.name = std::move(name);
  job->body = std::move(body);
  call->begin([call, job, action](const Serving& serving) {
    job->serving = serving;
    call->prepare(
        action.slow ? kSlow : 0,
        [job] { job->error = perform(job->serving, job->route, job->body, &job->answer); },
        [job, call, action] {
          if (job->answer.variant.size() <= kLongestShown)
            call->record().model = job->answer.variant;
          Out message;
          if (!job->error)
            job->error = fill_message(action.shape(std::move(job->answer.json)), &message);
          if (job->error) return call->fail(job->error);
          if (action.changes)
            log_info("admin id={} key={} action={} variant={}", call->record().id(),
                     call->record().caller.empty() ? "-" : call->record().caller,
                     admin_action_name(action.action), job->answer.variant);
          call->answer(std::move(message));
        });
  });
  return call.get();
}

std::string text(const Json& json) { return to_text(json); }

}  // namespace

// METHOD, the action, the answer's shape, whether it changes anything, whether it reads files,
// whose name it is about, and the body.
#define DELTAD_ADMIN_METHOD(Method, action, shape, changes, slow, name, body)                    \
  grpc::ServerUnaryReactor* AdminService::Method(grpc::CallbackServerContext* context,           \
                                                 const v1::Method##Request* request,             \
                                                 v1::Method##Response* response) {               \
    return perform_rpc(home_, known_method("Admin/" #Method), *context, *request,                \
                       Action{AdminAction::action, shape, changes, slow}, name, body, response); \
  }

DELTAD_ADMIN_METHOD(ListVariants, kList, as_list, false, false, "", "")
DELTAD_ADMIN_METHOD(GetVariant, kGet, under<kVariant>, false, false, request->name(), "")
DELTAD_ADMIN_METHOD(AddVariant, kAdd, under<kVariant>, true, true, "", text(body_json(*request)))
DELTAD_ADMIN_METHOD(ReplaceVariant, kReplace, under<kVariant>, true, true, request->name(),
                    text(body_json(*request)))
DELTAD_ADMIN_METHOD(RemoveVariant, kRemove, nothing, true, false, request->name(), "")
DELTAD_ADMIN_METHOD(PinVariant, kPin, under<kVariant>, true, false, request->name(), "")
DELTAD_ADMIN_METHOD(UnpinVariant, kUnpin, under<kVariant>, true, false, request->name(), "")
DELTAD_ADMIN_METHOD(PrefetchVariant, kPrefetch, under<kVariant>, true, false, request->name(), "")
DELTAD_ADMIN_METHOD(EvictVariant, kEvict, under<kVariant>, true, false, request->name(), "")
DELTAD_ADMIN_METHOD(SetRateLimit, kLimit, under<kVariant>, true, false, request->name(),
                    text(body_json(*request)))
DELTAD_ADMIN_METHOD(GetCache, kCache, as_it_is, false, false, "", "")
DELTAD_ADMIN_METHOD(GetPool, kPool, as_it_is, false, false, "", "")
DELTAD_ADMIN_METHOD(AddPoolAdapter, kPoolAdd, under<kOperation>, true, false, "",
                    text(body_json(*request)))
DELTAD_ADMIN_METHOD(GetPoolAdapter, kPoolGet, under<kAdapter>, false, false, request->name(), "")
DELTAD_ADMIN_METHOD(RemovePoolAdapter, kPoolRemove, under<kOperation>, true, false, request->name(),
                    "")
DELTAD_ADMIN_METHOD(SetPoolBudget, kPoolBudget, under<kOperation>, true, false, "",
                    text(body_json(*request)))
DELTAD_ADMIN_METHOD(GetPoolOperation, kPoolOperation, under<kOperation>, false, false,
                    std::to_string(request->id()), "")
DELTAD_ADMIN_METHOD(CancelPoolOperation, kPoolCancel, under<kOperation>, true, false,
                    std::to_string(request->id()), "")
#undef DELTAD_ADMIN_METHOD

}  // namespace deltad
