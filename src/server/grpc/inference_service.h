// The Inference service of proto/deltad/v1: reads each call's request, plans it, and lets a
// Generation answer it. Called on gRPC's threads; works on those of the home.
#pragma once

#include <memory>

#include "deltad/v1/inference.grpc.pb.h"
#include "server/grpc/rpc_home.h"

namespace deltad {

class InferenceService final : public v1::Inference::CallbackService {
 public:
  explicit InferenceService(std::shared_ptr<RpcHome> home) : home_(std::move(home)) {}

  template <typename Response>
  using Stream = grpc::ServerWriteReactor<Response>;
  using Unary = grpc::ServerUnaryReactor;
  using Context = grpc::CallbackServerContext;

  Unary* Generate(Context* context, const v1::GenerateRequest* request,
                  v1::GenerateResponse* response) override;
  Stream<v1::GenerateStreamResponse>* GenerateStream(Context* context,
                                                     const v1::GenerateRequest* request) override;
  Unary* Chat(Context* context, const v1::ChatRequest* request,
              v1::ChatResponse* response) override;
  Stream<v1::ChatStreamResponse>* ChatStream(Context* context,
                                             const v1::ChatRequest* request) override;
  Unary* Tokenize(Context* context, const v1::TokenizeRequest* request,
                  v1::TokenizeResponse* response) override;
  Unary* Detokenize(Context* context, const v1::DetokenizeRequest* request,
                    v1::DetokenizeResponse* response) override;
  Unary* ListModels(Context* context, const v1::ListModelsRequest* request,
                    v1::ListModelsResponse* response) override;

 private:
  const std::shared_ptr<RpcHome> home_;
};

}  // namespace deltad
