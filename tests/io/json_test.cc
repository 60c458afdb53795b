#include "regard/io/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "regard/io/error.h"
#include "tests/io/files.h"

namespace regard::io {
namespace {

using testing::HasSubstr;

TEST(Json, ParsesAsTheLibraryDoes) {
  const std::string text =
      R"( {"a": [1, -2, 3.5e2, "x\u6ce8\n", null, true, {"b": {}, "c": [[]]}], "": 18446744073709551615} )";
  EXPECT_EQ(parse_json(text, "test"), Json::parse(text));
  EXPECT_EQ(parse_json("7", "test"), Json(7));
  EXPECT_EQ(parse_json("\"x\"", "test"), Json("x"));
}

TEST(Json, ErrorsGiveTheSourceAndThePlace) {
  EXPECT_EQ(message_of<Error>([] { parse_json("{\n  \"a\": 1,\n  \"a\": 2}", "f.json"); }),
            "f.json: field \"a\" is given twice (line 3, column 6)");
  EXPECT_THAT(message_of<Error>([] { parse_json("{\n \"a\" 1}", "f.json"); }),
              testing::MatchesRegex("f.json: not valid JSON: .*expected ':' \\(line 2, column [0-9]+\\)"));
}

TEST(Json, GettersNameFieldValueAndWhatIsAllowed) {
  const Json config = parse_json(
      R"({"heads": 0, "text": "12", "part": 12.5, "whole": 12.0, "null": null, "big": 18446744073709551615,
      "list": [1], "yes": true, "eps": 1e-5, "huge": 1e40})",
      "config.json");
  const auto ask = [&](auto getter) { return message_of<Error>([&] { getter(config); }); };
  EXPECT_EQ(ask([](auto& c) { require_int(c, "heads", 1, 1024, "config.json"); }),
            "config.json: field \"heads\" is 0; it must be a whole number from 1 to 1024");
  EXPECT_THAT(ask([](auto& c) { require_int(c, "text", 1, 1024); }),
              HasSubstr("field \"text\" is \"12\"; it must be"));
  EXPECT_THAT(ask([](auto& c) { require_int(c, "part", 1, 1024); }), HasSubstr("is 12.5"));
  EXPECT_THAT(ask([](auto& c) { require_int(c, "whole", 1, 1024); }), HasSubstr("is 12.0"));
  EXPECT_THAT(ask([](auto& c) { require_int(c, "big", 0, INT64_MAX); }),
              HasSubstr("is 18446744073709551615"));
  EXPECT_THAT(ask([](auto& c) { require_int(c, "null", 0, 1); }), HasSubstr("is missing"));
  EXPECT_THAT(ask([](auto& c) { require_int(c, "nothing", 0, 1); }), HasSubstr("is missing"));
  EXPECT_THAT(ask([](auto& c) { require_int(c, "list", 0, 1); }), HasSubstr("is an array of 1 values"));
  EXPECT_THAT(ask([](auto& c) { require_number(c, "huge", 0, 1); }),
              HasSubstr("is 1e+40; it must be a number from 0 to 1"));
  EXPECT_THAT(ask([](auto& c) { require_number(c, "yes", 0, 1); }), HasSubstr("is true"));
  EXPECT_THAT(ask([](auto& c) { require_bool(c, "heads"); }), HasSubstr("true or false"));
  EXPECT_THAT(ask([](auto& c) { require_string(c, "heads"); }), HasSubstr("a string"));
  EXPECT_THAT(ask([](auto& c) { require_object(c, "list"); }), HasSubstr("an object"));
  EXPECT_THAT(ask([](auto& c) { require_array(c, "eps"); }), HasSubstr("an array"));
  EXPECT_THAT(ask([](auto& c) { int_or(c, "text", 1, 0, 2); }), HasSubstr("is \"12\""));
  EXPECT_EQ(int_or(config, "null", 5, 0, 2), 5);
  EXPECT_EQ(number_or(config, "eps", 1, 0, 1), 1e-5);
  EXPECT_EQ(number_or(config, "heads", 1, 0, 1), 0);
  EXPECT_EQ(bool_or(config, "yes", false), true);
  EXPECT_EQ(string_or(config, "nothing", "x"), "x");
  EXPECT_THAT(message_of<Error>([] { require_int(Json(3), "a", 0, 1); }),
              HasSubstr("an object was expected"));
}

}  // namespace
}  // namespace regard::io
