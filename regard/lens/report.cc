#include "regard/lens/report.h"

#include <cmath>
#include <limits>

namespace regard::lens {
namespace {

using Json = nlohmann::json;

// JSON has no NaN: a score that the text cannot show is null.
Json number(float value) {
  return std::isfinite(value) ? Json(value) : Json(nullptr);
}

Json to_json(const PatternScores& scores) {
  Json out;
  for (int i = 0; i < kLabels; ++i) {
    const auto label = static_cast<Label>(i);
    if (label != Label::mixed) out[std::string(name(label))] = number(value(scores, label));
  }
  return out;
}

Json to_json(const Mixture& mixture, const std::vector<Unit>& units) {
  const auto terms = [&](const std::vector<MixtureTerm>& from) {
    Json out = Json::array();
    for (const MixtureTerm& term : from) {
      out.push_back({{"unit", term.unit},
                     {"text", units[static_cast<size_t>(term.unit)].text},
                     {"weight", term.weight}});
    }
    return out;
  };
  return {{"terms", terms(mixture.terms)},
          {"sinks", terms(mixture.sinks)},
          {"sink_weight", mixture.sink_weight},
          {"rest", mixture.rest},
          {"rest_units", mixture.rest_units}};
}

Json to_json(const std::vector<Unit>& units) {
  Json out = Json::array();
  for (const Unit& unit : units) {
    out.push_back({{"text", unit.text},
                   {"first_token", unit.first},
                   {"tokens", unit.count},
                   {"special", unit.special},
                   {"punctuation", unit.punctuation}});
  }
  return out;
}

Json to_json(const Focus& focus, const std::vector<Unit>& units) {
  const auto text_of = [&](int64_t unit) {
    return unit < 0 ? Json(nullptr) : Json(units[static_cast<size_t>(unit)].text);
  };
  Json heads = Json::array();
  for (const FocusHead& head : focus.heads) {
    heads.push_back({{"layer", head.layer},
                     {"head", head.head},
                     {"label", name(head.label)},
                     {"label_score", head.label_score},
                     {"top_unit", head.top_unit},
                     {"top_text", text_of(head.top_unit)},
                     {"top_weight", head.top_weight},
                     {"weights", head.weights},
                     {"mixture", to_json(head.mixture, units)}});
  }
  Json strongest = Json::array();
  for (const auto& heads_of_unit : focus.strongest) {
    Json of_unit = Json::array();
    for (const Focus::Strongest& head : heads_of_unit) {
      of_unit.push_back(
          {{"layer", head.layer}, {"head", head.head}, {"label", name(head.label)}, {"weight", head.weight}});
    }
    strongest.push_back(std::move(of_unit));
  }
  Json received = Json::array();
  for (const Focus::Received& pair : focus.received) {
    received.push_back({{"layer", pair.layer},
                        {"head", pair.head},
                        {"label", name(pair.label)},
                        {"unit", pair.unit},
                        {"text", text_of(pair.unit)},
                        {"weight", pair.weight}});
  }
  return {{"unit", focus.unit},
          {"text", text_of(focus.unit)},
          {"chosen_by_user", focus.chosen_by_user},
          {"reason", focus.reason},
          {"occurrence", focus.occurrence},
          {"occurrences", focus.occurrences},
          {"on_unit", focus.on_unit < 0 ? Json(nullptr) : Json(focus.on_unit)},
          {"mean_weights", focus.mean_weights},
          {"mean_mixture", to_json(focus.mean_mixture, units)},
          {"heads", std::move(heads)},
          {"strongest", std::move(strongest)},
          {"rollout", focus.rollout.empty() ? Json(nullptr) : Json(focus.rollout)},
          {"received_mean", focus.received_mean},
          {"received", std::move(received)}};
}

}  // namespace

std::string_view name(Label label) {
  switch (label) {
    case Label::previous:
      return "previous";
    case Label::next:
      return "next";
    case Label::self:
      return "self";
    case Label::first:
      return "first";
    case Label::special:
      return "special";
    case Label::same_token:
      return "same token";
    case Label::induction:
      return "induction";
    case Label::broad:
      return "broad";
    case Label::mixed:
      return "mixed";
  }
  return "unknown";
}

std::string_view description(Label label) {
  switch (label) {
    case Label::previous:
      return "looks at the token just before";
    case Label::next:
      return "looks at the token just after";
    case Label::self:
      return "looks at the token itself";
    case Label::first:
      return "rests on the first token: idle for most words";
    case Label::special:
      return "rests on special tokens: idle for most words";
    case Label::same_token:
      return "looks at the same token elsewhere";
    case Label::induction:
      return "looks at what followed this token earlier";
    case Label::broad:
      return "spreads over all it sees, no favourite";
    case Label::mixed:
      return "no such simple rule: worth a look";
  }
  return "";
}

float value(const PatternScores& scores, Label label) {
  switch (label) {
    case Label::previous:
      return scores.previous;
    case Label::next:
      return scores.next;
    case Label::self:
      return scores.self;
    case Label::first:
      return scores.first;
    case Label::special:
      return scores.special;
    case Label::same_token:
      return scores.same_token;
    case Label::induction:
      return scores.induction;
    case Label::broad:
      return scores.broad;
    case Label::mixed:
      break;
  }
  return std::numeric_limits<float>::quiet_NaN();
}

nlohmann::json to_json(const Report& report) {
  Json tokens = Json::array();
  for (const Token& token : report.tokens) {
    tokens.push_back({{"id", token.id},
                      {"piece", token.piece},
                      {"text", token.text},
                      {"begin", token.begin},
                      {"end", token.end},
                      {"special", token.special},
                      {"punctuation", token.punctuation},
                      {"unknown", token.unknown}});
  }
  Json grid = Json::array();
  for (const HeadReport& head : report.grid) {
    grid.push_back({{"layer", head.layer},
                    {"head", head.head},
                    {"label", name(head.label)},
                    {"label_score", number(head.label_score)},
                    {"scores", to_json(head.scores)},
                    {"entropy", head.entropy},
                    {"entropy_share", head.entropy_share},
                    {"sink", head.sink}});
  }
  return {
      {"model", report.model},
      {"architecture", report.architecture},
      {"text", report.text},
      {"layers", report.layers},
      {"heads", report.heads},
      {"kv_heads", report.kv_heads},
      {"kept_layers", report.kept_layers},
      {"causal", report.causal},
      {"window", report.window},
      {"approximate", report.approximate},
      {"weak", report.weak},
      {"view", report.words ? "words" : "tokens"},
      {"special_hidden", report.special_hidden},
      {"tokens_before_cut", report.tokens_before_cut > 0 ? Json(report.tokens_before_cut) : Json(nullptr)},
      {"warnings", report.warnings},
      {"tokens", std::move(tokens)},
      {"units", to_json(report.units)},
      {"grid", std::move(grid)},
      {"focus", to_json(report.focus, report.units)}};
}

}  // namespace regard::lens
