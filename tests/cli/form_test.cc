// `--as`: another form of attention over the same queries and keys.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "program.h"
#include "small_qkv.h"
#include "tests/io/files.h"

namespace regard::cli::testing {
namespace {

using ::testing::HasSubstr;

TEST(As, PrintsTheFormsWeightsAndErrorBesideSoftmax) {
  io::TemporaryFolder folder;
  const std::string file = (folder / "qkv.npz").string();
  write_small_qkv(file);
  for (const std::string form : {"block=4", "nystrom=4"}) {
    const Outcome outcome = run({"look", "--qkv", file, "--as", form, "--layer", "0", "--head", "1"});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.out, HasSubstr("Beside softmax")) << form;
    EXPECT_THAT(outcome.out, HasSubstr("weights off"));
    EXPECT_THAT(outcome.out, HasSubstr("in L0H1"));
  }
}

TEST(As, IsPartOfTheJson) {
  io::TemporaryFolder folder;
  const std::string file = (folder / "qkv.npz").string();
  write_small_qkv(file);
  const Outcome outcome = run({"look", "--qkv", file, "--as", "block=12", "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const nlohmann::json form = nlohmann::json::parse(outcome.out)["as"];
  EXPECT_EQ(form["form"], "block");
  ASSERT_EQ(form["heads"].size(), 2u);
  EXPECT_LT(form["heads"][0]["weight_error"].get<double>(), 1e-5);  // one block of 12: full attention
  EXPECT_EQ(form["row"]["softmax"].size(), 12u);
}

TEST(As, NamesAWrongForm) {
  const Outcome outcome = run({"look", "--qkv", "none.npz", "--as", "sparse"});
  EXPECT_NE(outcome.code, 0);
  EXPECT_THAT(outcome.err,
              HasSubstr("there is no form of attention called 'sparse'; there are block, nystrom"));
}

}  // namespace
}  // namespace regard::cli::testing
