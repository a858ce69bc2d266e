// The Admin service of proto/deltad/v1: the actions of the HTTP admin API (server/admin) under
// other names; requests and answers go through its JSON, so that both say the same. Called on
// gRPC's threads; works on those of the home.
#pragma once

#include <memory>
#include <utility>

#include "deltad/v1/admin.grpc.pb.h"
#include "server/admin/routes.h"
#include "server/grpc/rpc_home.h"

namespace deltad {

class AdminService final : public v1::Admin::CallbackService {
 public:
  explicit AdminService(std::shared_ptr<RpcHome> home) : home_(std::move(home)) {}

#define DELTAD_ADMIN_METHOD(Method)                                      \
  grpc::ServerUnaryReactor* Method(grpc::CallbackServerContext* context, \
                                   const v1::Method##Request* request,   \
                                   v1::Method##Response* response) override;
  DELTAD_ADMIN_METHOD(ListVariants)
  DELTAD_ADMIN_METHOD(GetVariant)
  DELTAD_ADMIN_METHOD(AddVariant)
  DELTAD_ADMIN_METHOD(ReplaceVariant)
  DELTAD_ADMIN_METHOD(RemoveVariant)
  DELTAD_ADMIN_METHOD(PinVariant)
  DELTAD_ADMIN_METHOD(UnpinVariant)
  DELTAD_ADMIN_METHOD(PrefetchVariant)
  DELTAD_ADMIN_METHOD(EvictVariant)
  DELTAD_ADMIN_METHOD(SetRateLimit)
  DELTAD_ADMIN_METHOD(GetCache)
  DELTAD_ADMIN_METHOD(GetPool)
  DELTAD_ADMIN_METHOD(AddPoolAdapter)
  DELTAD_ADMIN_METHOD(GetPoolAdapter)
  DELTAD_ADMIN_METHOD(RemovePoolAdapter)
  DELTAD_ADMIN_METHOD(SetPoolBudget)
  DELTAD_ADMIN_METHOD(GetPoolOperation)
  DELTAD_ADMIN_METHOD(CancelPoolOperation)
#undef DELTAD_ADMIN_METHOD

 private:
  const std::shared_ptr<RpcHome> home_;
};

}  // namespace deltad
