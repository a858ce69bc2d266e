#include "server/openai/messages.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "server/openai/chat_prompt_reader.h"
#include "server/openai/json_reader.h"
#include "tests/unit/server/fake_text.h"

namespace deltad {
namespace {

ApiError read(const std::string& text, Json* out) {
  Json json;
  if (ApiError error = parse_json(text, "", &json)) return error;
  return read_messages(json, "messages", out);
}

TEST(Messages, ContentInAllForms) {
  Json out;
  ASSERT_FALSE(read(R"([
    {"role":"system","content":"S"},
    {"role":"developer","content":"D"},
    {"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}],"name":"Ann"},
    {"role":"assistant","content":null,"refusal":null,"audio":null,"function_call":null},
    {"role":"tool","content":"42","tool_call_id":"call_1"}])",
                    &out));
  EXPECT_EQ(out.dump(), R"([{"role":"system","content":"S"},{"role":"developer","content":"D"},)"
                        R"({"role":"user","content":"a\nb","name":"Ann"},)"
                        R"({"role":"assistant","content":""},)"
                        R"({"role":"tool","content":"42","tool_call_id":"call_1"}])");
}

TEST(Messages, ToolCallArgumentsBecomeObjects) {
  Json out;
  ASSERT_FALSE(
      read(R"([{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function",
    "function":{"name":"f","arguments":"{\"b\":1,\"a\":[2]}"}},
    {"id":"c2","type":"function","function":{"name":"g","arguments":""}}]}])",
           &out));
  const Json& message = out[0];
  EXPECT_TRUE(message["content"].is_null());
  EXPECT_EQ(message["tool_calls"][0]["function"]["arguments"].dump(), R"({"b":1,"a":[2]})");
  EXPECT_EQ(message["tool_calls"][1]["function"]["arguments"], Json::object());
}

TEST(Messages, FaultsAreNamed) {
  struct Case {
    const char* text;
    const char* param;
  };
  const std::vector<Case> cases = {
      {R"({})", "messages"},
      {R"([])", "messages"},
      {R"(["x"])", "messages[0]"},
      {R"([{"content":"x"}])", "messages[0].role"},
      {R"([{"role":1,"content":"x"}])", "messages[0].role"},
      {R"([{"role":"function","content":"x"}])", "messages[0].role"},
      {R"([{"role":"user"}])", "messages[0].content"},
      {R"([{"role":"user","content":null}])", "messages[0].content"},
      {R"([{"role":"user","content":5}])", "messages[0].content"},
      {R"([{"role":"user","content":{"type":"text"}}])", "messages[0].content"},
      {R"([{"role":"user","content":["x"]}])", "messages[0].content[0]"},
      {R"([{"role":"user","content":[{"text":"x"}]}])", "messages[0].content[0].type"},
      {R"([{"role":"user","content":[{"type":"text","text":"x"},{"type":"image_url","image_url":{}}]}])",
       "messages[0].content[1].type"},
      {R"([{"role":"user","content":[{"type":"text"}]}])", "messages[0].content[0].text"},
      {R"([{"role":"user","content":[{"type":"text","text":1}]}])", "messages[0].content[0].text"},
      {R"([{"role":"user","content":"x","name":1}])", "messages[0].name"},
      {R"([{"role":"user","content":"x","other":1}])", "messages[0].other"},
      {R"([{"role":"user","content":"x","tool_calls":[]}])", "messages[0].tool_calls"},
      {R"([{"role":"user","content":"x"},{"role":"assistant","tool_calls":{}}])",
       "messages[1].tool_calls"},
      {R"([{"role":"assistant","tool_calls":[1]}])", "messages[0].tool_calls[0]"},
      {R"([{"role":"assistant","tool_calls":[{"id":"c"}]}])", "messages[0].tool_calls[0].function"},
      {R"([{"role":"assistant","tool_calls":[{"type":"custom"}]}])",
       "messages[0].tool_calls[0].type"},
      {R"([{"role":"assistant","tool_calls":[{"id":1,"function":{}}]}])",
       "messages[0].tool_calls[0].id"},
      {R"([{"role":"assistant","tool_calls":[{"function":{"arguments":"{}"}}]}])",
       "messages[0].tool_calls[0].function.name"},
      {R"([{"role":"assistant","tool_calls":[{"function":{"name":"f"}}]}])",
       "messages[0].tool_calls[0].function.arguments"},
      {R"([{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":{}}}]}])",
       "messages[0].tool_calls[0].function.arguments"},
      {R"([{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"{bad"}}]}])",
       "messages[0].tool_calls[0].function.arguments"},
      {R"([{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"[1]"}}]}])",
       "messages[0].tool_calls[0].function.arguments"},
      {R"([{"role":"assistant","content":"x","function_call":{"name":"f"}}])",
       "messages[0].function_call"},
      {R"([{"role":"assistant","content":"x","audio":{"id":"a"}}])", "messages[0].audio"},
  };
  for (const Case& c : cases) {
    Json out;
    const ApiError error = read(c.text, &out);
    EXPECT_EQ(error.status, 400) << c.text;
    EXPECT_EQ(error.param, c.param) << c.text << ": " << error.message;
  }
}

class ChatPromptTest : public ::testing::Test {
 protected:
  ApiError render(const std::string& messages) {
    if (ApiError error = read(messages, &fields_.messages)) return error;
    if (ApiError error = check_chat_prompt(fields_)) return error;
    return render_chat(fields_, *text_, 0, &prompt_);
  }

  std::shared_ptr<TextAssets> text_ = testing::fake_text();
  ChatPromptFields fields_;
  std::string prompt_;
};

TEST_F(ChatPromptTest, RendersWithTheGenerationPrompt) {
  ASSERT_FALSE(render(R"([{"role":"user","content":"Hi"}])"));
  EXPECT_EQ(prompt_, "<user>Hi\n<assistant>");
  fields_.add_generation_prompt = false;
  fields_.template_kwargs["prefix"] = "P";
  ASSERT_FALSE(render(R"([{"role":"user","content":"Hi"}])"));
  EXPECT_EQ(prompt_, "P<user>Hi\n");
}

TEST_F(ChatPromptTest, DeveloperIsSystemForTemplatesThatDoNotKnowIt) {
  ASSERT_FALSE(render(R"([{"role":"developer","content":"D"}])"));
  EXPECT_EQ(prompt_, "<system>D\n<assistant>");
  text_->chat_template_source = "{% if message.role == 'developer' %}";
  ASSERT_FALSE(render(R"([{"role":"developer","content":"D"}])"));
  EXPECT_EQ(prompt_, "<developer>D\n<assistant>");
}

TEST_F(ChatPromptTest, NullContentIsEmptyForTemplatesThatCannotTakeIt) {
  ASSERT_FALSE(render(R"([{"role":"user","content":"Q"},{"role":"assistant","content":null,
    "tool_calls":[{"id":"c","function":{"name":"f","arguments":"{}"}}]}])"));
  EXPECT_NE(prompt_.find("<assistant>[{"), std::string::npos) << prompt_;
}

TEST_F(ChatPromptTest, TemplateErrorsSayTheLine) {
  const ApiError error = render(R"([{"role":"user","content":"forbidden"}])");
  EXPECT_EQ(error.status, 400);
  EXPECT_EQ(error.param, "messages");
  EXPECT_NE(error.message.find("line 7"), std::string::npos);
}

TEST_F(ChatPromptTest, NoTemplate) {
  text_->chat_template = nullptr;
  EXPECT_EQ(render(R"([{"role":"user","content":"Hi"}])").status, 400);
}

TEST_F(ChatPromptTest, ContinuesTheFinalMessage) {
  fields_.continue_final_message = true;
  ASSERT_FALSE(render(R"([{"role":"user","content":"Once"},
                          {"role":"assistant","content":" Once upon "}])"));
  EXPECT_EQ(prompt_, "<user>Once\n<assistant> Once upon ");
  EXPECT_EQ(render(R"([{"role":"assistant","content":"  "}])").param, "continue_final_message");
  EXPECT_EQ(render(R"([{"role":"assistant","content":null,"tool_calls":[{"id":"c",
    "function":{"name":"f","arguments":"{}"}}]}])")
                .param,
            "continue_final_message");
}

}  // namespace
}  // namespace deltad
