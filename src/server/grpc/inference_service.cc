#include "server/grpc/inference_service.h"

#include <utility>

#include "server/generation/generation.h"
#include "server/generation/tokenization.h"
#include "server/grpc/generation_answer.h"
#include "server/grpc/methods.h"
#include "server/grpc/request_reader.h"
#include "server/grpc/rpc.h"
#include "server/openai/ids.h"

namespace deltad {
namespace {

ApiError make_plan(const Serving& serving, const Caller& caller, const v1::GenerateRequest& in,
                   GenerationPlan* plan) {
  CompletionRequest request;
  RETURN_IF_API_ERROR(read_request(in, &request));
  return plan_completion(serving, caller, std::move(request), plan);
}

ApiError make_plan(const Serving& serving, const Caller& caller, const v1::ChatRequest& in,
                   GenerationPlan* plan) {
  ChatRequest request;
  RETURN_IF_API_ERROR(read_request(in, &request));
  return plan_chat(serving, caller, std::move(request), plan);
}

const char* id_prefix(const v1::GenerateRequest&) { return "gen-"; }
const char* id_prefix(const v1::ChatRequest&) { return "chat-"; }

// in is copied: the client may leave while it is still being read.
template <typename Answer, typename In, typename Call>
void generate(const std::shared_ptr<Call>& call, const In& in, bool stream) {
  struct Job {
    In in;
    Serving serving;
    GenerationPlan plan;
    ApiError error;
  };
  call->begin([call, &in, stream](const Serving& serving) {
    auto job = std::make_shared<Job>();
    job->serving = serving;
    job->in = in;
    call->prepare(
        in.ByteSizeLong(),
        [job, caller = call->caller()] {
          job->error = make_plan(job->serving, *caller, job->in, &job->plan);
        },
        [job, call, stream] {
          if (call->over()) return;
          if (job->error) return call->fail(job->error);
          job->plan.sampling.stream = stream;
          job->plan.deadline = call->deadline();
          auto answer = std::make_unique<Answer>(call, job->plan, random_id(id_prefix(job->in)));
          std::make_shared<Generation>(job->serving, std::move(job->plan), std::move(answer),
                                       call->take_admission(), random_seed())
              ->start();
        });
  });
}

template <typename Response, typename In>
grpc::ServerUnaryReactor* generate_whole(const std::shared_ptr<RpcHome>& home,
                                         const KnownMethod& method,
                                         grpc::CallbackServerContext& context, const In& in,
                                         Response* response) {
  auto call =
      std::make_shared<UnaryRpc<Response>>(response, home, method, *In::descriptor(), context);
  generate<UnaryAnswer<Response>>(call, in, false);
  return call.get();
}

template <typename Response, typename In>
grpc::ServerWriteReactor<Response>* generate_stream(const std::shared_ptr<RpcHome>& home,
                                                    const KnownMethod& method,
                                                    grpc::CallbackServerContext& context,
                                                    const In& in) {
  auto call = std::make_shared<StreamRpc<Response>>(home, method, *In::descriptor(), context);
  generate<StreamAnswer<Response>>(call, in, true);
  return call.get();
}

// A call whose answer is there once its request has been read.
template <typename Out, typename In>
grpc::ServerUnaryReactor* answer(const std::shared_ptr<RpcHome>& home, const KnownMethod& method,
                                 grpc::CallbackServerContext& context, const In& in, Out* out,
                                 ApiError (*work)(const Serving&, const Caller&, const In&, Out*)) {
  struct Job {
    In in;
    Out out;
    Serving serving;
    ApiError error;
  };
  auto call = std::make_shared<UnaryRpc<Out>>(out, home, method, *In::descriptor(), context);
  call->begin([call, &in, work](const Serving& serving) {
    auto job = std::make_shared<Job>();
    job->serving = serving;
    job->in = in;
    call->prepare(
        in.ByteSizeLong(),
        [job, work, caller = call->caller()] {
          job->error = work(job->serving, *caller, job->in, &job->out);
        },
        [job, call] {
          if (job->error) return call->fail(job->error);
          call->answer(std::move(job->out));
        });
  });
  return call.get();
}

ApiError tokenize_proto(const Serving& serving, const Caller& caller, const v1::TokenizeRequest& in,
                        v1::TokenizeResponse* out) {
  TokenizeRequest request;
  RETURN_IF_API_ERROR(read_request(in, &request));
  TokenizeAnswer answer;
  RETURN_IF_API_ERROR(tokenize(serving, caller, request, &answer));
  out->mutable_tokens()->Add(answer.tokens.begin(), answer.tokens.end());
  out->set_max_model_len(serving.engine->max_context());
  for (std::string& text : answer.token_strs) out->add_token_strs(valid_utf8(std::move(text)));
  return {};
}

ApiError detokenize_proto(const Serving& serving, const Caller& caller,
                          const v1::DetokenizeRequest& in, v1::DetokenizeResponse* out) {
  std::string text;
  RETURN_IF_API_ERROR(
      detokenize(serving, caller, in.model(), {in.tokens().begin(), in.tokens().end()}, &text));
  out->set_prompt(valid_utf8(std::move(text)));
  return {};
}

// Those that the caller may use.
ApiError list_models_proto(const Serving& serving, const Caller& caller,
                           const v1::ListModelsRequest&, v1::ListModelsResponse* out) {
  const std::string base = valid_utf8(serving.router->base_name());
  const auto add = [&](const std::string& id, int64_t created, const std::string& root) {
    v1::Model* model = out->add_models();
    model->set_id(valid_utf8(id));
    model->set_created(created);
    model->set_root(valid_utf8(root));
    model->set_max_model_len(serving.engine->max_context());
    return model;
  };
  if (caller.may_use(serving.router->base_name())) add(base, serving.created, serving.base_path);
  for (const VariantInfo& info : serving.router->variants())
    if (caller.may_use(info.name)) add(info.name, info.created, info.path)->set_parent(base);
  return {};
}

}  // namespace

grpc::ServerUnaryReactor* InferenceService::Generate(Context* context,
                                                     const v1::GenerateRequest* request,
                                                     v1::GenerateResponse* response) {
  return generate_whole(home_, known_method("Inference/Generate"), *context, *request, response);
}

grpc::ServerWriteReactor<v1::GenerateStreamResponse>* InferenceService::GenerateStream(
    Context* context, const v1::GenerateRequest* request) {
  return generate_stream<v1::GenerateStreamResponse>(
      home_, known_method("Inference/GenerateStream"), *context, *request);
}

grpc::ServerUnaryReactor* InferenceService::Chat(Context* context, const v1::ChatRequest* request,
                                                 v1::ChatResponse* response) {
  return generate_whole(home_, known_method("Inference/Chat"), *context, *request, response);
}

grpc::ServerWriteReactor<v1::ChatStreamResponse>* InferenceService::ChatStream(
    Context* context, const v1::ChatRequest* request) {
  return generate_stream<v1::ChatStreamResponse>(home_, known_method("Inference/ChatStream"),
                                                 *context, *request);
}

grpc::ServerUnaryReactor* InferenceService::Tokenize(Context* context,
                                                     const v1::TokenizeRequest* request,
                                                     v1::TokenizeResponse* response) {
  return answer(home_, known_method("Inference/Tokenize"), *context, *request, response,
                tokenize_proto);
}

grpc::ServerUnaryReactor* InferenceService::Detokenize(Context* context,
                                                       const v1::DetokenizeRequest* request,
                                                       v1::DetokenizeResponse* response) {
  return answer(home_, known_method("Inference/Detokenize"), *context, *request, response,
                detokenize_proto);
}

grpc::ServerUnaryReactor* InferenceService::ListModels(Context* context,
                                                       const v1::ListModelsRequest* request,
                                                       v1::ListModelsResponse* response) {
  return answer(home_, known_method("Inference/ListModels"), *context, *request, response,
                list_models_proto);
}

}  // namespace deltad
