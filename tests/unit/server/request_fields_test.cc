// Each parameter of the two generation endpoints: what it accepts, and the 400 that names it.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "server/openai/chat_request.h"
#include "server/openai/completion_request.h"

namespace deltad {
namespace {

ApiError chat(const std::string& fields, ChatRequest* out) {
  *out = ChatRequest();
  return parse_chat_request(R"({"messages":[{"role":"user","content":"Hi"}],)" + fields + "}", out);
}
ApiError completion(const std::string& fields, CompletionRequest* out) {
  *out = CompletionRequest();
  return parse_completion_request(R"({"prompt":"Hi",)" + fields + "}", out);
}

struct Bad {
  const char* fields;
  const char* param;
};

// Of both endpoints.
const std::vector<Bad> kBadEverywhere = {
    {R"("model":1)", "model"},
    {R"("model":["a"])", "model"},
    {R"("n":0)", "n"},
    {R"("n":129)", "n"},
    {R"("n":1.5)", "n"},
    {R"("n":"1")", "n"},
    {R"("n":99999999999999999999)", "n"},
    {R"("stream":1)", "stream"},
    {R"("stream":"true")", "stream"},
    {R"("stream_options":{"include_usage":true})", "stream_options"},
    {R"("stream":true,"stream_options":true)", "stream_options"},
    {R"("stream":true,"stream_options":{"include_usage":1})", "stream_options.include_usage"},
    {R"("stream":true,"stream_options":{"other":1})", "stream_options.other"},
    {R"("stream":true,"stream_options":{"continuous_usage_stats":true})",
     "stream_options.continuous_usage_stats"},
    {R"("temperature":-0.1)", "temperature"},
    {R"("temperature":2.1)", "temperature"},
    {R"("temperature":"1")", "temperature"},
    {R"("temperature":true)", "temperature"},
    {R"("top_p":0)", "top_p"},
    {R"("top_p":1.01)", "top_p"},
    {R"("top_p":[1])", "top_p"},
    {R"("min_p":-0.1)", "min_p"},
    {R"("min_p":1.1)", "min_p"},
    {R"("min_p":{})", "min_p"},
    {R"("top_k":-2)", "top_k"},
    {R"("top_k":1.5)", "top_k"},
    {R"("top_k":3000000000)", "top_k"},
    {R"("repetition_penalty":0)", "repetition_penalty"},
    {R"("repetition_penalty":-1)", "repetition_penalty"},
    {R"("repetition_penalty":"1")", "repetition_penalty"},
    {R"("frequency_penalty":2.1)", "frequency_penalty"},
    {R"("frequency_penalty":-2.1)", "frequency_penalty"},
    {R"("frequency_penalty":"0")", "frequency_penalty"},
    {R"("presence_penalty":2.1)", "presence_penalty"},
    {R"("presence_penalty":-2.1)", "presence_penalty"},
    {R"("presence_penalty":[])", "presence_penalty"},
    {R"("seed":"x")", "seed"},
    {R"("seed":1.5)", "seed"},
    {R"("seed":18446744073709551615)", "seed"},
    {R"("stop":1)", "stop"},
    {R"("stop":"")", "stop"},
    {R"("stop":["a",""])", "stop[1]"},
    {R"("stop":["a",2])", "stop[1]"},
    {R"("stop":["1","2","3","4","5","6","7","8","9","10","11","12","13","14","15","16","17"])",
     "stop"},
    {R"("stop_token_ids":1)", "stop_token_ids"},
    {R"("stop_token_ids":["1"])", "stop_token_ids[0]"},
    {R"("stop_token_ids":[-1])", "stop_token_ids[0]"},
    {R"("stop_token_ids":[1,2147483648])", "stop_token_ids[1]"},
    {R"("max_tokens":-1)", "max_tokens"},
    {R"("max_tokens":"5")", "max_tokens"},
    {R"("max_tokens":2147483648)", "max_tokens"},
    {R"("min_tokens":-1)", "min_tokens"},
    {R"("min_tokens":6,"max_tokens":5)", "min_tokens"},
    {R"("min_tokens":"5")", "min_tokens"},
    {R"("ignore_eos":1)", "ignore_eos"},
    {R"("include_stop_str_in_output":"no")", "include_stop_str_in_output"},
    {R"("skip_special_tokens":0)", "skip_special_tokens"},
    {R"("add_special_tokens":0)", "add_special_tokens"},
    {R"("return_token_ids":"yes")", "return_token_ids"},
    {R"("priority":1.5)", "priority"},
    {R"("priority":99999999999)", "priority"},
    {R"("logit_bias":[])", "logit_bias"},
    {R"("logit_bias":{"a":1})", "logit_bias"},
    {R"("logit_bias":{"-1":1})", "logit_bias"},
    {R"("logit_bias":{"1 ":1})", "logit_bias"},
    {R"("logit_bias":{"5":"1"})", "logit_bias.5"},
    {R"("logit_bias":{"5":101})", "logit_bias.5"},
    {R"("logit_bias":{"5":-101})", "logit_bias.5"},
    {R"("user":1)", "user"},
    {R"("metadata":"x")", "metadata"},
    {R"("metadata":{"a":1})", "metadata.a"},
    {R"("no_such_thing":1)", "no_such_thing"},
    {R"("no_such_thing":null)", "no_such_thing"},
    // Known, but not built.
    {R"("response_format":{"type":"json_object"})", "response_format"},
    {R"("response_format":"text")", "response_format"},
    {R"("guided_json":{})", "guided_json"},
    {R"("structured_outputs":{"json":{}})", "structured_outputs"},
    {R"("store":true)", "store"},
    {R"("service_tier":"flex")", "service_tier"},
    {R"("use_beam_search":true)", "use_beam_search"},
    {R"("length_penalty":0.5)", "length_penalty"},
    {R"("logits_processors":["x"])", "logits_processors"},
    {R"("bad_words":["x"])", "bad_words"},
    {R"("allowed_token_ids":[1])", "allowed_token_ids"},
    {R"("prompt_logprobs":1)", "prompt_logprobs"},
    {R"("truncate_prompt_tokens":1)", "truncate_prompt_tokens"},
    {R"("best_of":2)", "best_of"},
};

const std::vector<Bad> kBadChat = {
    {R"("max_tokens":0)", "max_tokens"},
    {R"("max_completion_tokens":0)", "max_completion_tokens"},
    {R"("max_completion_tokens":"5")", "max_completion_tokens"},
    {R"("logprobs":1)", "logprobs"},
    {R"("top_logprobs":1)", "top_logprobs"},
    {R"("logprobs":false,"top_logprobs":1)", "top_logprobs"},
    {R"("logprobs":true,"top_logprobs":21)", "top_logprobs"},
    {R"("logprobs":true,"top_logprobs":-1)", "top_logprobs"},
    {R"("add_generation_prompt":1)", "add_generation_prompt"},
    {R"("continue_final_message":1)", "continue_final_message"},
    {R"("continue_final_message":true,"add_generation_prompt":true)", "continue_final_message"},
    {R"("chat_template_kwargs":1)", "chat_template_kwargs"},
    {R"("chat_template_kwargs":{"messages":[]})", "chat_template_kwargs"},
    {R"("prompt":"x")", "prompt"},
    {R"("suffix":"x")", "suffix"},
    {R"("echo":true)", "echo"},
    {R"("tools":[{"type":"function","function":{"name":"f"}}])", "tools"},
    {R"("tool_choice":"required")", "tool_choice"},
    {R"("tool_choice":{"type":"function","function":{"name":"f"}})", "tool_choice"},
    {R"("functions":[{"name":"f"}])", "functions"},
    {R"("function_call":{"name":"f"})", "function_call"},
    {R"("audio":{"voice":"alloy"})", "audio"},
    {R"("modalities":["text","audio"])", "modalities"},
    {R"("prediction":{"type":"content","content":"x"})", "prediction"},
    {R"("web_search_options":{})", "web_search_options"},
    {R"("reasoning_effort":"low")", "reasoning_effort"},
    {R"("verbosity":"low")", "verbosity"},
    {R"("documents":[{"text":"x"}])", "documents"},
    {R"("chat_template":"x")", "chat_template"},
};

const std::vector<Bad> kBadCompletion = {
    {R"("messages":[])", "messages"},
    {R"("tools":[])", "tools"},
    {R"("max_completion_tokens":5)", "max_completion_tokens"},
    {R"("echo":1)", "echo"},
    {R"("logprobs":true)", "logprobs"},
    {R"("logprobs":21)", "logprobs"},
    {R"("logprobs":-1)", "logprobs"},
    {R"("top_logprobs":1)", "top_logprobs"},
    {R"("suffix":"end")", "suffix"},
    {R"("n":2,"best_of":3)", "best_of"},
    {R"("best_of":"1")", "best_of"},
    {R"("min_tokens":17)", "min_tokens"},
};

void expect_named(const ApiError& error, const Bad& bad) {
  EXPECT_EQ(error.status, 400) << bad.fields;
  EXPECT_EQ(error.param, bad.param) << bad.fields << ": " << error.message;
  EXPECT_EQ(error.type, "invalid_request_error") << bad.fields;
  EXPECT_TRUE(error.code.has_value()) << bad.fields;
}

TEST(RequestFields, WrongTypesAndRangesAreNamed) {
  for (const Bad& bad : kBadEverywhere) {
    ChatRequest chat_request;
    expect_named(chat(bad.fields, &chat_request), bad);
    CompletionRequest completion_request;
    expect_named(completion(bad.fields, &completion_request), bad);
  }
}

TEST(RequestFields, ChatOnly) {
  for (const Bad& bad : kBadChat) {
    ChatRequest request;
    expect_named(chat(bad.fields, &request), bad);
  }
}

TEST(RequestFields, CompletionsOnly) {
  for (const Bad& bad : kBadCompletion) {
    CompletionRequest request;
    expect_named(completion(bad.fields, &request), bad);
  }
}

TEST(RequestFields, UnknownArgumentIsNamedAsOpenAiDoes) {
  ChatRequest request;
  const ApiError error = chat(R"("temprature":1)", &request);
  EXPECT_EQ(error.message, "Unrecognized request argument supplied: temprature");
  const ApiError long_name = chat("\"" + std::string(100'000, 'x') + "\":1", &request);
  EXPECT_LT(long_name.message.size(), 200u);
  EXPECT_LT(long_name.param->size(), 200u);
}

TEST(RequestFields, NullIsAbsentAndHarmlessValuesPass) {
  ChatRequest request;
  EXPECT_FALSE(chat(R"("model":null,"n":null,"stream":null,"stream_options":null,"temperature":null,
    "top_p":null,"seed":null,"stop":null,"max_tokens":null,"max_completion_tokens":null,
    "logprobs":null,"top_logprobs":null,"logit_bias":null,"frequency_penalty":null,
    "presence_penalty":null,"response_format":null,"tools":null,"tool_choice":null,
    "functions":null,"audio":null,"modalities":null,"prediction":null,"reasoning_effort":null,
    "web_search_options":null,"user":null,"metadata":null,"store":null,"best_of":null,
    "chat_template_kwargs":null,"add_generation_prompt":null)",
                    &request));
  EXPECT_FALSE(chat(R"("tools":[],"tool_choice":"none","parallel_tool_calls":true,
    "response_format":{"type":"text"},"modalities":["text"],"functions":[],"store":false,
    "service_tier":"auto","user":"someone","metadata":{"a":"b"},"safety_identifier":"x",
    "prompt_cache_key":"x","best_of":1,"use_beam_search":false,"length_penalty":1.0,
    "echo":false)",
                    &request));
}

TEST(RequestFields, ChatValuesArrive) {
  ChatRequest request;
  ASSERT_FALSE(chat(R"("model":"math","n":3,"stream":true,
    "stream_options":{"include_usage":true,"include_obfuscation":false},"temperature":0.5,
    "top_p":0.9,"top_k":40,"min_p":0.05,"repetition_penalty":1.1,"frequency_penalty":-0.5,
    "presence_penalty":0.25,"seed":-7,"stop":["a","b"],"stop_token_ids":[1,2],"max_tokens":10,
    "max_completion_tokens":20,"min_tokens":2,"ignore_eos":true,"include_stop_str_in_output":true,
    "skip_special_tokens":false,"logit_bias":{"5":-100,"6":1.5},"priority":-3,
    "return_token_ids":true,"logprobs":true,"top_logprobs":4,
    "chat_template_kwargs":{"thinking":true})",
                    &request));
  const SamplingFields& s = request.sampling;
  EXPECT_EQ(s.model, "math");
  EXPECT_EQ(s.n, 3);
  EXPECT_TRUE(s.stream && s.include_usage && s.ignore_eos && s.include_stop_str_in_output);
  EXPECT_FALSE(s.skip_special_tokens);
  EXPECT_EQ(s.max_tokens, 20);
  EXPECT_EQ(s.max_tokens_name, "max_completion_tokens");
  EXPECT_EQ(s.min_tokens, 2);
  EXPECT_EQ(s.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(s.stop_token_ids, (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(s.priority, -3);
  EXPECT_TRUE(s.return_token_ids);
  EXPECT_TRUE(request.logprobs);
  EXPECT_EQ(request.top_logprobs, 4);
  EXPECT_EQ(request.prompt.template_kwargs["thinking"], true);

  const SamplingParams params = sampling_params(s, {}, 99);
  EXPECT_FLOAT_EQ(params.temperature, 0.5f);
  EXPECT_FLOAT_EQ(params.top_p, 0.9f);
  EXPECT_FLOAT_EQ(params.min_p, 0.05f);
  EXPECT_EQ(params.top_k, 40);
  EXPECT_FLOAT_EQ(params.repetition_penalty, 1.1f);
  EXPECT_FLOAT_EQ(params.frequency_penalty, -0.5f);
  EXPECT_FLOAT_EQ(params.presence_penalty, 0.25f);
  EXPECT_EQ(params.seed, static_cast<uint64_t>(-7));
  ASSERT_EQ(params.logit_bias.size(), 2u);
  EXPECT_EQ(params.logit_bias[0].first, 5);
  EXPECT_FLOAT_EQ(params.logit_bias[0].second, -100);
}

TEST(RequestFields, ModelsDefaultsFillWhatIsOpen) {
  GenerationDefaults defaults;
  defaults.temperature = 0.2;
  defaults.top_k = 50;
  defaults.top_p = 0.8;
  ChatRequest request;
  ASSERT_FALSE(chat(R"("top_p":0.5)", &request));
  const SamplingParams params = sampling_params(request.sampling, defaults, 99);
  EXPECT_FLOAT_EQ(params.temperature, 0.2f);
  EXPECT_FLOAT_EQ(params.top_p, 0.5f);
  EXPECT_EQ(params.top_k, 50);
  EXPECT_EQ(params.seed, 99u);
}

TEST(RequestFields, WholeDecimalsAreIntegersAndTopKMinusOneIsAll) {
  ChatRequest request;
  ASSERT_FALSE(chat(R"("max_tokens":16.0,"top_k":-1)", &request));
  EXPECT_EQ(request.sampling.max_tokens, 16);
  EXPECT_EQ(sampling_params(request.sampling, {}, 0).top_k, 0);
}

TEST(RequestFields, PromptsOfAllKinds) {
  CompletionRequest request;
  const auto parse = [&request](const std::string& prompt) {
    request = CompletionRequest();
    return parse_completion_request("{\"prompt\":" + prompt + "}", &request);
  };
  ASSERT_FALSE(parse(R"("one")"));
  EXPECT_EQ(std::get<std::string>(request.prompts.at(0)), "one");
  ASSERT_FALSE(parse(R"(["one","two"])"));
  EXPECT_EQ(std::get<std::string>(request.prompts.at(1)), "two");
  ASSERT_FALSE(parse("[1,2,3]"));
  EXPECT_EQ(std::get<std::vector<int32_t>>(request.prompts.at(0)), (std::vector<int32_t>{1, 2, 3}));
  ASSERT_FALSE(parse("[[1],[2,3]]"));
  EXPECT_EQ(std::get<std::vector<int32_t>>(request.prompts.at(1)), (std::vector<int32_t>{2, 3}));

  EXPECT_EQ(parse("null").param, "prompt");
  EXPECT_EQ(parse("7").param, "prompt");
  EXPECT_EQ(parse("{}").param, "prompt");
  EXPECT_EQ(parse("[]").param, "prompt");
  EXPECT_EQ(parse("[true]").param, "prompt");
  EXPECT_EQ(parse(R"(["a",1])").param, "prompt[1]");
  EXPECT_EQ(parse(R"([1,"a"])").param, "prompt[1]");
  EXPECT_EQ(parse("[[1],2]").param, "prompt[1]");
  EXPECT_EQ(parse("[[1],[-2]]").param, "prompt[1][0]");
  request = CompletionRequest();
  EXPECT_EQ(parse_completion_request("{}", &request).param, "prompt");
  EXPECT_EQ(parse_completion_request("[]", &request).status, 400);
}

TEST(RequestFields, BestOfEqualToNIsPlainN) {
  CompletionRequest request;
  EXPECT_FALSE(completion(R"("n":3,"best_of":3)", &request));
  EXPECT_FALSE(completion(R"("best_of":1,"logprobs":0,"echo":true,"max_tokens":0)", &request));
  EXPECT_EQ(request.logprobs, 0);
}

}  // namespace
}  // namespace deltad
