// The admin API over a fake router: paths, keys, fields, and how what the router says is answered.
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "server/admin/api.h"
#include "server/admin/variant_json.h"
#include "tests/unit/server/api_fixture.h"

namespace deltad::testing {
namespace {

const char* const kKey = "s3cret";

class AdminTest : public ::testing::Test {
 protected:
  AdminTest() : access_(access_with({}, {kKey})), api_(*access_, observer_) {
    Serving serving;
    serving.router = &router_;
    serving.engine = &engine_;
    api_.readiness().set_ready(serving);
  }

  std::shared_ptr<Answer> ask_with(HttpHeaders headers, const std::string& method,
                                   const std::string& target, std::string body = "") {
    auto answer = std::make_shared<Answer>();
    HttpRequest request;
    request.method = method;
    request.target = target;
    request.headers = std::move(headers);
    request.body = std::move(body);
    api_.handle(std::move(request), std::make_shared<FakeExchange>(answer));
    answer->pump();
    return answer;
  }
  std::shared_ptr<Answer> ask(const std::string& method, const std::string& target,
                              std::string body = "") {
    return ask_with({{"authorization", std::string("Bearer ") + kKey}}, method, target,
                    std::move(body));
  }
  // The changes so far, "add math /v/math".
  std::vector<std::string> changes() const {
    std::vector<std::string> out;
    for (const auto& [what, source] : router_.changes())
      out.push_back(what + " " + source.name + (source.path.empty() ? "" : " " + source.path));
    return out;
  }
  using Changes = std::vector<std::string>;

  Observer observer_;  // outlives all that answers
  FakeRouter router_;
  FakeEngine engine_;
  const std::unique_ptr<Access> access_;
  AdminApi api_;
};

TEST_F(AdminTest, NeedsItsKey) {
  expect_error(*ask_with({}, "GET", "/admin/v1/variants"), 401, "");
  expect_error(*ask_with({{"authorization", "Bearer wrong"}}, "POST", "/v1/load_lora_adapter"), 401,
               "");
  expect_error(*ask_with({}, "GET", "/nothing"), 401, "");
  EXPECT_EQ(ask_with({}, "GET", "/health")->response.status, 200);
  EXPECT_EQ(ask("GET", "/admin/v1/variants")->response.status, 200);
  EXPECT_TRUE(changes().empty());
}

// A page that the administrator looks at must not reach a listener on their own machine.
TEST_F(AdminTest, RefusesWebPages) {
  const auto access = open_access();
  AdminApi open(*access, observer_);
  auto answer = std::make_shared<Answer>();
  HttpRequest request;
  request.method = "DELETE";
  request.target = "/admin/v1/variants/math";
  request.headers = {{"origin", "https://elsewhere"}};
  open.handle(request, std::make_shared<FakeExchange>(answer));
  expect_error(*answer, 403, "", "pages of other sites");
}

TEST_F(AdminTest, PathsAndMethods) {
  expect_error(*ask("GET", "/admin/v1/nothing"), 404, "");
  expect_error(*ask("GET", "/admin/v1/variants/"), 404, "");
  expect_error(*ask("POST", "/v1/chat/completions", "{}"), 404, "");
  const auto wrong = ask("PATCH", "/admin/v1/variants/math");
  expect_error(*wrong, 405, "");
  EXPECT_EQ(*wrong->header("Allow"), "GET, HEAD, PUT, DELETE");
  expect_error(*ask("POST", "/admin/v1/variants/math"), 405, "");
  expect_error(*ask("PUT", "/admin/v1/variants", "{}"), 405, "");
  expect_error(*ask("GET", "/v1/load_lora_adapter"), 405, "");
  EXPECT_EQ(ask("HEAD", "/admin/v1/variants")->response.status, 200);
  EXPECT_EQ(ask("GET", "/v1/models")->json()["data"].size(), 3u);
}

TEST_F(AdminTest, NamesMayHoldSlashesAndTheNamesOfActions) {
  const auto route = [](const char* method, const char* path) {
    const AdminRoute match =
        match_admin_route(method, std::string("/admin/v1/variants/") + path + "?x=y");
    return std::string(admin_action_name(match.action)) + " " + match.name;
  };
  EXPECT_EQ(route("GET", "team/v1.5:a"), "get team/v1.5:a");
  EXPECT_EQ(route("POST", "team/v1.5/pin"), "pin team/v1.5");
  EXPECT_EQ(route("POST", "team%2Fv1.5/unpin"), "unpin team/v1.5");
  EXPECT_EQ(route("PUT", "a/rate_limit"), "rate_limit a");
  EXPECT_EQ(route("PUT", "a%2Frate_limit"), "replace a/rate_limit");
  EXPECT_EQ(route("GET", "a/pin"), "get a/pin");
  EXPECT_EQ(route("DELETE", "a/evict"), "remove a/evict");
  EXPECT_EQ(route("POST", "a%2Fpin/evict"), "evict a/pin");
  EXPECT_EQ(route("GET", "pin"), "get pin");
  EXPECT_EQ(route("PUT", "50%25%zz"), "replace 50%%zz");
}

TEST_F(AdminTest, NothingIsDoneBeforeTheModelIsThere) {
  api_.readiness().close("The model is being loaded.");
  for (const char* path : {"/admin/v1/variants", "/admin/v1/cache", "/v1/models"})
    expect_error(*ask("GET", path), 503, "", "being loaded");
  expect_error(*ask("DELETE", "/admin/v1/variants/math"), 503, "");
  EXPECT_EQ(ask("GET", "/health")->response.status, 200);
  EXPECT_TRUE(changes().empty());
}

TEST_F(AdminTest, ListsAllOfTheCatalog) {
  const auto list = ask("GET", "/admin/v1/variants")->json();
  EXPECT_EQ(list["object"], "list");
  ASSERT_EQ(list["data"].size(), 2u);
  EXPECT_EQ(list["data"][0], ask("GET", "/admin/v1/variants/math")->json());
  EXPECT_EQ(ask("GET", "/admin/v1/variants/org/poet")->json()["name"], "org/poet");
  expect_error(*ask("GET", "/admin/v1/variants/nobody"), 404, "name", "does not exist");
}

TEST(AdminJson, ShowsEveryField) {
  VariantInfo info;
  info.name = "a";
  info.path = "/v/a";
  info.state = VariantState::kFailed;
  info.error = "no such file";
  info.retry_seconds = 2.5;
  info.pinned = true;
  info.waiting = 1;
  info.in_flight = 2;
  info.rate = 0.1234567;
  info.created = 5;
  EXPECT_EQ(variant_json(info),
            Json::parse(R"({"object":"variant","name":"a","path":"/v/a","member":null,
      "state":"failed","error":"no such file","retry_seconds":2.5,"digest":null,"bytes":0,
      "pinned":true,"in_flight":2,"waiting":1,"requests_per_second":0.123,"idle_seconds":null,
      "loads":0,"load_seconds":null,"promotions":0,"promotion_seconds":null,"created":5,
      "rate_limit":null})"));
  info.state = VariantState::kResident;
  info.error.clear();
  info.digest = "d1";
  info.bytes = 100;
  info.idle_seconds = 3;
  info.loads = 2;
  info.load_seconds = 0.5;
  info.promotions = 3;
  info.promotion_seconds = 0.0204;
  info.limit = {2.5, 0, 600};
  const Json json = variant_json(info);
  EXPECT_EQ(json["state"], "resident");
  EXPECT_EQ(json["error"], nullptr);
  EXPECT_EQ(json["retry_seconds"], nullptr);
  EXPECT_EQ(json["digest"], "d1");
  EXPECT_EQ(json["bytes"], 100);
  EXPECT_EQ(json["idle_seconds"], 3);
  EXPECT_EQ(json["load_seconds"], 0.5);
  EXPECT_EQ(json["promotions"], 3);
  EXPECT_EQ(json["promotion_seconds"], 0.02);
  EXPECT_EQ(json["rate_limit"],
            Json::parse(R"({"requests_per_second":2.5,"burst":3,"tokens_per_minute":600})"));
}

TEST_F(AdminTest, ShowsTheMemory) {
  EXPECT_EQ(ask("GET", "/admin/v1/cache")->json(), Json::parse(R"({"object":"cache",
      "device":{"budget_bytes":5000,"used_bytes":1600,"loading_bytes":600},
      "host":{"budget_bytes":0,"used_bytes":0,"loading_bytes":0}})"));
}

TEST_F(AdminTest, AddsAndReplaces) {
  const auto added = ask("POST", "/admin/v1/variants",
                         R"({"name":"a/b","path":"/v/a","rate_limit":{"requests_per_second":2}})");
  EXPECT_EQ(added->response.status, 201);
  EXPECT_EQ(added->json()["name"], "a/b");
  EXPECT_EQ(router_.changes()[0].second.limit, (VariantLimit{2, 0, 0}));
  // With "replace" it depends on what is there.
  EXPECT_EQ(ask("POST", "/admin/v1/variants", R"({"name":"math","path":"/v/m","replace":true})")
                ->response.status,
            200);
  EXPECT_EQ(ask("POST", "/admin/v1/variants", R"({"name":"new","path":"/v/n","replace":true})")
                ->response.status,
            201);
  EXPECT_EQ(ask("PUT", "/admin/v1/variants/math", R"({"path":"/v/m2"})")->response.status, 200);
  EXPECT_EQ(changes(),
            (Changes{"add a/b /v/a", "replace math /v/m", "add new /v/n", "replace math /v/m2"}));
}

TEST_F(AdminTest, Removes) {
  const auto removed = ask("DELETE", "/admin/v1/variants/org/poet");
  EXPECT_EQ(removed->response.status, 200);
  EXPECT_EQ(removed->json(),
            Json::parse(R"({"object":"variant","name":"org/poet","deleted":true})"));
  EXPECT_EQ(changes(), Changes{"remove org/poet"});
}

TEST_F(AdminTest, Keeps) {
  EXPECT_EQ(ask("POST", "/admin/v1/variants/math/pin")->json()["name"], "math");
  EXPECT_EQ(ask("POST", "/admin/v1/variants/math/unpin", "{}")->response.status, 200);
  EXPECT_EQ(ask("POST", "/admin/v1/variants/math/prefetch")->response.status, 202);
  EXPECT_EQ(ask("POST", "/admin/v1/variants/math/evict")->response.status, 200);
  EXPECT_EQ(changes(), (Changes{"pin math", "unpin math", "prefetch math", "evict math"}));
  expect_error(*ask("POST", "/admin/v1/variants/math/pin", R"({"for":3})"), 400, "for",
               "Unrecognized");
}

TEST_F(AdminTest, Limits) {
  const std::string path = "/admin/v1/variants/math/rate_limit";
  const auto put = [&](const char* body) { return ask("PUT", path, body); };
  EXPECT_EQ(put(R"({"requests_per_second":5,"burst":10})")->response.status, 200);
  EXPECT_EQ(put(R"({"tokens_per_minute":6000,"burst":null})")->response.status, 200);
  EXPECT_EQ(put("null")->response.status, 200);
  ASSERT_EQ(router_.changes().size(), 3u);
  EXPECT_EQ(router_.changes()[0].second.limit, (VariantLimit{5, 10, 0}));
  EXPECT_EQ(router_.changes()[1].second.limit, (VariantLimit{0, 0, 6000}));
  EXPECT_FALSE(router_.changes()[2].second.limit.any());

  expect_error(*put(""), 400, "", "not valid JSON");
  expect_error(*put("[]"), 400, "", "must be a JSON object");
  expect_error(*put("{}"), 400, "", "give requests_per_second, tokens_per_minute or both");
  expect_error(*put(R"({"burst":3})"), 400, "", "give requests_per_second");
  expect_error(*put(R"({"burst":3,"tokens_per_minute":9})"), 400, "burst", "requests_per_second");
  expect_error(*put(R"({"requests_per_second":0})"), 400, "requests_per_second", "above 0");
  expect_error(*put(R"({"requests_per_second":1,"burst":0})"), 400, "burst", "from 1 to");
  expect_error(*put(R"({"rps":1})"), 400, "rps", "Unrecognized");
  EXPECT_EQ(router_.changes().size(), 3u);
}

TEST_F(AdminTest, FieldsAreChecked) {
  const auto add = [&](const char* body) { return ask("POST", "/admin/v1/variants", body); };
  expect_error(*add("{"), 400, "", "not valid JSON");
  expect_error(*add("[]"), 400, "", "must be a JSON object");
  expect_error(*add(R"({"path":"/v"})"), 400, "name", "Missing required");
  expect_error(*add(R"({"name":"a"})"), 400, "path", "Missing required");
  expect_error(*add(R"({"name":"a","path":""})"), 400, "path", "absolute path");
  expect_error(*add(R"({"name":"a","path":"v/a"})"), 400, "path", "absolute path");
  expect_error(*add(R"({"name":1,"path":"/v"})"), 400, "name", "expected a string");
  expect_error(*add(R"({"name":"a","path":"/v","replace":"yes"})"), 400, "replace", "a boolean");
  expect_error(*add(R"({"name":"a","path":"/v","force":true})"), 400, "force", "Unrecognized");
  expect_error(*add(R"({"name":"a","path":"/v","rate_limit":3})"), 400, "rate_limit", "an object");
  expect_error(*add(R"({"name":"a","path":"/v","rate_limit":{"burst":0}})"), 400,
               "rate_limit.burst", "from 1 to");
  expect_error(*ask("PUT", "/admin/v1/variants/math", R"({"name":"math","path":"/v"})"), 400,
               "name", "Unrecognized");
  EXPECT_TRUE(changes().empty());
}

TEST_F(AdminTest, WhatTheRouterRefusesIsSaidInItsWords) {
  const struct {
    Status status;
    int http;
    const char* param;
  } cases[] = {
      {invalid_argument("'/v' is no variant"), 400, ""},
      {not_found("no such variant"), 404, "name"},
      {conflict("in use by 3 requests"), 409, ""},
      {unavailable("can never fit"), 503, ""},
  };
  for (const auto& c : cases) {
    router_.change_result(c.status);
    const std::string& words = c.status.message();
    expect_error(*ask("POST", "/admin/v1/variants", R"({"name":"a","path":"/v"})"), c.http, c.param,
                 words);
    expect_error(*ask("PUT", "/admin/v1/variants/math", R"({"path":"/v"})"), c.http, c.param,
                 words);
    expect_error(*ask("DELETE", "/admin/v1/variants/math"), c.http, c.param, words);
    for (const char* action : {"pin", "unpin", "prefetch", "evict"})
      expect_error(*ask("POST", std::string("/admin/v1/variants/math/") + action), c.http, c.param,
                   words);
    expect_error(*ask("PUT", "/admin/v1/variants/math/rate_limit", "null"), c.http, c.param, words);
  }
}

TEST_F(AdminTest, SpeaksAsVllmDoes) {
  const auto load = [&](const char* body) { return ask("POST", "/v1/load_lora_adapter", body); };
  const auto unload = [&](const char* body) {
    return ask("POST", "/v1/unload_lora_adapter", body);
  };
  const auto loaded = load(R"({"lora_name":"sql","lora_path":"/v/sql","base_model_name":""})");
  EXPECT_EQ(loaded->response.status, 200);
  EXPECT_EQ(loaded->response.body, "Success: LoRA adapter 'sql' added successfully.");
  EXPECT_EQ(*loaded->header("Content-Type"), "text/plain; charset=utf-8");
  EXPECT_EQ(load(R"({"lora_name":"math","lora_path":"/v/m","load_inplace":true,
                     "base_model_name":"base"})")
                ->response.status,
            200);
  EXPECT_EQ(unload(R"({"lora_name":"sql"})")->response.body,
            "Success: LoRA adapter 'sql' removed successfully.");
  EXPECT_EQ(changes(), (Changes{"add sql /v/sql", "replace math /v/m", "remove sql"}));

  expect_error(*load(R"({"lora_path":"/v"})"), 400, "lora_name", "Missing required");
  expect_error(*load(R"({"lora_name":"a"})"), 400, "lora_path", "Missing required");
  expect_error(*load(R"({"lora_name":"a","lora_path":"b/c"})"), 400, "lora_path", "absolute path");
  expect_error(*load(R"({"lora_name":"a","lora_path":"/v","base_model_name":"other"})"), 400,
               "base_model_name", "called 'base'");
  expect_error(*unload("{}"), 400, "lora_name", "Missing required");
  router_.change_result(conflict("taken"));
  expect_error(*load(R"({"lora_name":"math","lora_path":"/v"})"), 400, "lora_name",
               "'math' has already been loaded");
  router_.change_result(not_found("nobody is called so"));
  expect_error(*unload(R"({"lora_name":"nobody"})"), 404, "lora_name", "nobody is called so");
}

TEST_F(AdminTest, EveryAnswerHasItsRequestId) {
  EXPECT_NE(ask("GET", "/admin/v1/variants")->header("X-Request-Id"), nullptr);
  const auto given = ask_with({{"x-request-id", "r-7"}}, "GET", "/admin/v1/variants");
  EXPECT_EQ(*given->header("X-Request-Id"), "r-7");
  EXPECT_EQ(api_.reject({}, 413, "too large").status, 413);
}

}  // namespace
}  // namespace deltad::testing
