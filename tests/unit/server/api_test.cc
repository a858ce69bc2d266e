// Paths, methods, readiness, keys, request ids, pages of other sites, and the small endpoints.
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "server/openai/cors.h"
#include "server/openai/ids.h"
#include "server/openai/routes.h"
#include "tests/unit/server/api_fixture.h"

namespace deltad::testing {
namespace {

TEST_F(ApiTest, PathsAndMethods) {
  expect_error(*ask("GET", "/nothing"), 404, "");
  expect_error(*ask("POST", "/v1/chat/completions/"), 404, "");
  const auto wrong = ask("GET", "/v1/chat/completions");
  expect_error(*wrong, 405, "");
  EXPECT_EQ(*wrong->header("Allow"), "POST, OPTIONS");
  expect_error(*ask("POST", "/v1/models"), 405, "");
  expect_error(*ask("DELETE", "/health"), 405, "");
  EXPECT_EQ(ask("HEAD", "/health")->response.status, 200);
  expect_error(*ask("HEAD", "/v1/completions"), 405, "");
  EXPECT_EQ(ask("GET", "/health?x=1")->response.status, 200);
}

TEST_F(ApiTest, NothingIsSaidOfTheRequestInErrors) {
  const auto answer = ask("GET", "/secret-path");
  EXPECT_EQ(answer->response.body.find("secret"), std::string::npos);
}

TEST_F(ApiTest, ReadinessAndLiveness) {
  EXPECT_EQ(ask("GET", "/ready")->response.status, 200);
  engine_.is_healthy = false;
  expect_error(*ask("GET", "/ready"), 503, "", "not healthy");
  EXPECT_EQ(ask("GET", "/health")->response.status, 200);
  engine_.device = internal_error("rank 2 of 4: no memory");  // for good
  expect_error(*ask("GET", "/ready"), 503, "", "not healthy: rank 2 of 4: no memory");
  expect_error(*ask("GET", "/health"), 503, "", "rank 2 of 4: no memory");
  engine_.device = {};
  engine_.is_healthy = true;
  EXPECT_EQ(ask("GET", "/ready")->response.status, 200);
  api_.readiness().close("The server is shutting down.");
  EXPECT_EQ(ask("GET", "/health")->response.status, 200);
  expect_error(*ask("GET", "/ready"), 503, "", "shutting down");
  for (const char* path : {"/v1/chat/completions", "/v1/completions", "/tokenize", "/detokenize"}) {
    expect_error(*post(path, "{}"), 503, "", "shutting down");
  }
  expect_error(*ask("GET", "/v1/models"), 503, "");
  expect_error(*ask("GET", "/v1/models/base"), 503, "");
  EXPECT_EQ(ask("GET", "/metrics")->response.status, 200);
  make_ready();  // the model was loaded just then
  expect_error(*ask("GET", "/ready"), 503, "", "shutting down");
}

TEST(ApiBeforeLoading, SaysThatItLoads) {
  const auto access = open_access();
  Observer observer;
  OpenAiApi api({}, *access, observer);
  auto answer = std::make_shared<Answer>();
  HttpRequest request;
  request.method = "GET";
  request.target = "/ready";
  api.handle(request, std::make_shared<FakeExchange>(answer));
  expect_error(*answer, 503, "", "loaded");
}

TEST_F(ApiTest, RunningRequestsOutliveReadiness) {
  const auto answer = chat("");
  api_.readiness().close("The server is shutting down.");
  give(answer, 0, "ok");
  EXPECT_EQ(answer->response.status, 200);
}

TEST_F(ApiTest, RequestIds) {
  const auto given = ask("GET", "/health", "", {{"x-request-id", "abc-123"}});
  EXPECT_EQ(*given->header("X-Request-Id"), "abc-123");
  for (const std::string& bad :
       std::vector<std::string>{"", "a b", "a\"b", "a\tb", "é", std::string(129, 'x')}) {
    const auto answer = ask("GET", "/health", "", {{"x-request-id", bad}});
    const std::string id = *answer->header("X-Request-Id");
    EXPECT_NE(id, bad);
    EXPECT_TRUE(valid_request_id(id));
  }
  EXPECT_NE(*ask("GET", "/health")->header("X-Request-Id"),
            *ask("GET", "/health")->header("X-Request-Id"));
  const auto error = ask("GET", "/nothing", "", {{"x-request-id", "e-1"}});
  EXPECT_EQ(*error->header("X-Request-Id"), "e-1");
  ask("POST", "/v1/completions", R"({"prompt":"x"})", {{"x-request-id", "c-1"}});
  EXPECT_EQ(router_.request(0)->id, "c-1");
}

TEST_F(ApiTest, PagesOfOtherSites) {
  const auto any = ask("GET", "/health", "", {{"origin", "https://a.example"}});
  EXPECT_EQ(*any->header("Access-Control-Allow-Origin"), "*");
  const auto flight = ask("OPTIONS", "/v1/chat/completions", "",
                          {{"origin", "https://a.example"},
                           {"access-control-request-method", "POST"},
                           {"access-control-request-headers", "authorization,x-stainless-os"}});
  EXPECT_EQ(flight->response.status, 204);
  EXPECT_EQ(*flight->header("Access-Control-Allow-Origin"), "*");
  EXPECT_EQ(*flight->header("Access-Control-Allow-Headers"), "authorization,x-stainless-os");
  EXPECT_NE(flight->header("Access-Control-Allow-Methods")->find("POST"), std::string::npos);
  expect_error(*ask("OPTIONS", "/nothing"), 404, "");
}

TEST(Cors, OnlyTheOriginsThatAreListed) {
  HttpRequest request;
  request.headers = {{"origin", "https://a.example"}};
  const auto find = [](const HttpHeaders& headers, const std::string& name) {
    for (const auto& [key, value] : headers) {
      if (key == name) return value;
    }
    return std::string();
  };
  const HttpHeaders yes = cors_headers({"https://a.example", "https://b.example"}, request);
  EXPECT_EQ(find(yes, "Access-Control-Allow-Origin"), "https://a.example");
  EXPECT_EQ(find(yes, "Vary"), "Origin");
  const HttpHeaders no = cors_headers({"https://b.example"}, request);
  EXPECT_EQ(find(no, "Access-Control-Allow-Origin"), "");
  EXPECT_EQ(find(cors_headers({}, request), "Access-Control-Allow-Origin"), "");
  request.headers.emplace_back("access-control-request-headers", "a\r\nSet-Cookie: x");
  const HttpResponse flight = preflight({"*"}, request, "GET");
  EXPECT_EQ(find(flight.headers, "Access-Control-Allow-Headers").find('\n'), std::string::npos);
}

TEST(ApiKeys, AreAskedFor) {
  FakeRouter router;
  FakeEngine engine;
  const auto access = access_with({"first", "second"});
  Observer observer;
  OpenAiApi api({}, *access, observer);
  Serving serving;
  serving.router = &router;
  serving.engine = &engine;
  api.readiness().set_ready(serving);
  const auto ask = [&api](const std::string& path, const std::string& authorization) {
    auto answer = std::make_shared<Answer>();
    HttpRequest request;
    request.method = "GET";
    request.target = path;
    if (!authorization.empty()) request.headers = {{"authorization", authorization}};
    api.handle(request, std::make_shared<FakeExchange>(answer));
    return answer;
  };
  EXPECT_EQ(ask("/v1/models", "Bearer second")->response.status, 200);
  for (const char* wrong : {"", "second", "Bearer ", "Bearer secon", "Bearer second2", "Basic x"}) {
    expect_error(*ask("/v1/models", wrong), 401, "");
  }
  EXPECT_EQ(ask("/health", "")->response.status, 200);
}

TEST_F(ApiTest, Models) {
  const auto list = ask("GET", "/v1/models")->json();
  EXPECT_EQ(list["object"], "list");
  ASSERT_EQ(list["data"].size(), 3u);
  EXPECT_EQ(list["data"][0]["id"], "base");
  EXPECT_EQ(list["data"][0]["created"], 1234);
  EXPECT_EQ(list["data"][0]["root"], "/models/base");
  EXPECT_TRUE(list["data"][0]["parent"].is_null());
  EXPECT_EQ(list["data"][0]["owned_by"], "deltad");
  EXPECT_EQ(list["data"][1]["parent"], "base");
  EXPECT_EQ(list["data"][1]["root"], "/variants/math");
  EXPECT_EQ(list["data"][1]["max_model_len"], 512);
  EXPECT_EQ(ask("GET", "/v1/models/math")->json(), list["data"][1]);
  EXPECT_EQ(ask("GET", "/v1/models/org/poet")->json()["id"], "org/poet");
  EXPECT_EQ(ask("GET", "/v1/models/org%2Fpoet")->json()["id"], "org/poet");
  EXPECT_EQ(ask("GET", "/v1/models/base")->json()["object"], "model");
  const auto unknown = ask("GET", "/v1/models/x");
  expect_error(*unknown, 404, "model");
  EXPECT_EQ(unknown->json()["error"]["code"], "model_not_found");
}

TEST(Routes, ModelIdsMayHoldAnything) {
  EXPECT_EQ(match_route("/v1/models/a/b%20c%2").model, "a/b c%2");
  EXPECT_TRUE(match_route("/v1/models/").allow.empty());
  EXPECT_TRUE(match_route("").allow.empty());
}

TEST_F(ApiTest, Tokenize) {
  auto json = post("/tokenize", R"({"model":"math","prompt":"Hello!"})")->json();
  EXPECT_EQ(json["tokens"], nlohmann::ordered_json({int{kBos}, int{kHello}, '!'}));
  EXPECT_EQ(json["count"], 3);
  EXPECT_EQ(json["max_model_len"], 512);
  EXPECT_TRUE(json["token_strs"].is_null());
  json = post("/tokenize", R"({"prompt":"Hello!","add_special_tokens":false,
                               "return_token_strs":true})")
             ->json();
  EXPECT_EQ(json["tokens"], nlohmann::ordered_json({int{kHello}, '!'}));
  EXPECT_EQ(json["token_strs"], nlohmann::ordered_json({"Hello", "!"}));
  json = post("/tokenize", R"({"messages":[{"role":"user","content":"a"}],
                               "add_generation_prompt":false})")
             ->json();
  EXPECT_EQ(json["count"], std::string("<user>a\n").size());

  expect_error(*post("/tokenize", "{}"), 400, "prompt");
  expect_error(*post("/tokenize", R"({"prompt":1})"), 400, "prompt");
  expect_error(*post("/tokenize", R"({"prompt":"a","messages":[{"role":"user","content":"a"}]})"),
               400, "messages");
  expect_error(*post("/tokenize", R"({"prompt":"a","odd":1})"), 400, "odd");
  expect_error(*post("/tokenize", R"({"prompt":"a","model":"x"})"), 404, "model");
  expect_error(*post("/tokenize", "[]"), 400, "");
}

TEST_F(ApiTest, Detokenize) {
  EXPECT_EQ(post("/detokenize", R"({"tokens":[258,259,33]})")->json()["prompt"], "Hello world!");
  EXPECT_EQ(post("/detokenize", R"({"tokens":[]})")->json()["prompt"], "");
  expect_error(*post("/detokenize", R"({"tokens":[260]})"), 400, "tokens", "259");
  expect_error(*post("/detokenize", R"({"tokens":"x"})"), 400, "tokens");
  expect_error(*post("/detokenize", R"({"tokens":[-1]})"), 400, "tokens[0]");
  expect_error(*post("/detokenize", R"({"model":"base"})"), 400, "tokens");
  expect_error(*post("/detokenize", R"({"tokens":[1],"odd":1})"), 400, "odd");
}

TEST_F(ApiTest, WhatNeverBecameARequest) {
  HttpRequest partial;
  partial.target = "/v1/chat/completions";
  partial.headers = {{"x-request-id", "big-1"}};
  const HttpResponse response = api_.reject(partial, 413, "The body is too large.");
  EXPECT_EQ(response.status, 413);
  const auto json = nlohmann::ordered_json::parse(response.body);
  EXPECT_EQ(json["error"]["message"], "The body is too large.");
  bool id = false, cors = false;
  for (const auto& [name, value] : response.headers) {
    id |= name == "X-Request-Id" && value == "big-1";
    cors |= name == "Access-Control-Allow-Origin";
  }
  EXPECT_TRUE(id && cors);
}

}  // namespace
}  // namespace deltad::testing
