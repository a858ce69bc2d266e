// Files of questions, good and bad.
#include "text/questions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temp_folder.h"

namespace deltad {
namespace {

using ::testing::HasSubstr;

TEST(Questions, ReadsLines) {
  const testing::TempFolder folder;
  const std::string path =
      folder.write("q.jsonl",
                   "{\"prompt\": \"a\", \"answer\": "
                   "\"b\\nc\"}\n\n{\"answer\":\"\",\"prompt\":\"d\",\"more\":1}");
  auto questions = read_questions(path);
  ASSERT_TRUE(questions.ok()) << questions.status().message();
  ASSERT_EQ(questions->size(), 2u);
  EXPECT_EQ((*questions)[0].answer, "b\nc");
  EXPECT_EQ((*questions)[1].prompt, "d");
}

TEST(Questions, NamesTheLineThatIsWrong) {
  const testing::TempFolder folder;
  for (const char* bad :
       {"nonsense", "[]", "{\"prompt\": \"a\"}", "{\"prompt\": \"a\", \"answer\": 3}"}) {
    const std::string path =
        folder.write("q.jsonl", std::string("{\"prompt\": \"a\", \"answer\": \"b\"}\n") + bad);
    const Status status = read_questions(path).status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << bad;
    EXPECT_THAT(status.message(), HasSubstr("line 2")) << bad;
  }
  EXPECT_THAT(read_questions(folder.write("q.jsonl", "\n")).status().message(),
              HasSubstr("no questions"));
  EXPECT_EQ(read_questions(folder.file("missing")).status().code(), Code::kNotFound);
}

}  // namespace
}  // namespace deltad
