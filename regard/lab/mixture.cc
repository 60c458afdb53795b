#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "regard/attention/observe.h"
#include "regard/autograd/attention.h"
#include "regard/io/error.h"
#include "regard/lab/columns.h"
#include "regard/lab/measures.h"
#include "regard/lab/tensors.h"
#include "regard/model/embed.h"
#include "regard/model/registry.h"

// The articles' worked examples, computed: what is mixed by given weights, what a query adds to a key's own
// pull, a shop as a soft dictionary, and whether a model's vectors agree with the words of the first article.
namespace regard::lab {
namespace {

// softmax(logits) values by the operator itself. logits [n], values [n, Dv] -> [Dv] and, if asked for, the
// weights.
at::Tensor attend(const at::Tensor& logits, const at::Tensor& values, at::Tensor* weights = nullptr) {
  const int64_t n = logits.size(0);
  const at::Tensor k = logits.to(at::kFloat).view({1, 1, n, 1});
  const at::Tensor q = at::ones({1, 1, 1, 1});
  attention::Spec spec;
  spec.scale = 1.0;
  at::Tensor lse;
  const at::Tensor out = autograd::attention(spec, q, k, values.to(at::kFloat).view({1, 1, n, -1}), {}, &lse);
  if (weights != nullptr) *weights = autograd::weights(spec, q, k, lse, 0, 0, 0, 1, 0, n)[0];
  return out.view({-1});
}

struct Example {
  const char* name;
  std::vector<const char*> words;
  std::vector<double> weights;  // as the article gives them
};

const std::vector<Example>& examples() {
  static const std::vector<Example> all = {
      {"11 hours over 6 books",
       {"Bo dian", "Chenlun", "Chi guihua", "Chunfeng", "Guihang", "Dazhong wenyi"},
       {2, 2, 2, 2, 2, 1}},
      {"transformer, in the sentence of poles",
       {"transformer", "pole", "fallen", "wires"},
       {0.7, 0.1, 0.1, 0.1}},
      {"transformer, in the sentence of models",
       {"transformer", "language", "image", "model"},
       {0.6, 0.1, 0.1, 0.2}},
      {"I ate an apple: an", {"I", "ate", "an", "apple"}, {0.2, 0.1, 0.5, 0.3}}};
  return all;
}

Table mixtures(std::vector<double>& sums, std::vector<double>& book_weights) {
  Table table{"mixture",
              "given weights, and the same through softmax of their logarithms",
              {text("example"), text("term"), number("given", 2), number("sum of the example", 2),
               number("as attention gives it", 4)},
              {}};
  for (const Example& example : examples()) {
    const at::Tensor given = at::tensor(example.weights, at::kDouble);
    at::Tensor weights;
    attend(given.log(), at::eye(given.size(0)), &weights);
    sums.push_back(given.sum().item<double>());
    for (size_t i = 0; i < example.words.size(); ++i) {
      const double weight = weights[static_cast<int64_t>(i)].item<double>();
      if (&example == &examples().front()) book_weights.push_back(weight);
      table.add({std::string(example.name), std::string(example.words[i]), example.weights[i], sums.back(),
                 weight});
    }
  }
  return table;
}

// Salt is what one wants, the toy is what pulls. Keys say what a thing is, the pull is a bias of its key,
// values are what one gets of it.
Table errand(bool& aim_wins, bool& pull_wins_without, double& between) {
  Table table{"mixture-errand",
              "weights of salt (wanted) and toy (pulls 5 times as much) as the will grows",
              {number("strength of the query", 0), number("salt", 3), number("toy", 3),
               number("sum of weight * pull", 2)},
              {}};
  const at::Tensor keys = at::eye(2, at::kDouble);
  const at::Tensor pulls = at::tensor({1.0, 5.0}, at::kDouble);
  const at::Tensor wanted = keys[0];
  at::Tensor weights;
  const at::Tensor values = at::tensor({1.0, 0.0, 0.5, 0.0, 1.0, 0.5}, at::kDouble).view({2, 3});
  for (const double strength : {0.0, 1.0, 2.0, 4.0, 8.0}) {
    const at::Tensor logits = strength * at::matmul(keys, wanted) + pulls.log();
    attend(logits, values, &weights);
    const double salt = weights[0].item<double>();
    const double toy = weights[1].item<double>();
    table.add({strength, salt, toy, salt * pulls[0].item<double>() + toy * pulls[1].item<double>()});
    if (strength == 0) pull_wins_without = toy > salt;
    aim_wins = salt > toy;
  }
  // What attention returns is the mixture of values; that of keys has not even its size.
  const at::Tensor logits = 2.0 * at::matmul(keys, wanted) + pulls.log();
  const at::Tensor out = attend(logits, values, &weights);
  between = difference(out, at::matmul(weights, values.to(at::kFloat)));
  return table;
}

// A dictionary of six things; a key's features: brand Li-Ning, another brand, shoe, shirt, red, blue.
struct Shop {
  std::vector<const char*> things = {"red shoe",       "blue shoe",        "red shirt",
                                     "other red shoe", "other blue shirt", "other red shirt"};
  at::Tensor keys = at::tensor({1., 0., 1., 0., 1., 0., 1., 0., 1., 0., 0., 1., 1., 0., 0., 1., 1., 0.,
                                0., 1., 1., 0., 1., 0., 0., 1., 0., 1., 0., 1., 0., 1., 0., 1., 1., 0.},
                               at::kDouble)
                        .view({6, 6});
  at::Tensor values = at::eye(6);
  at::Tensor scores = at::matmul(keys, keys[0]);  // one asks for what the first thing is
  at::Tensor exact = values[scores.argmax().item<int64_t>()];
};
constexpr double kTemperatures[] = {1.0, 0.5, 0.25, 0.1, 0.05};

Table soft_lookup(const Shop& shop, double& exact_error) {
  Table table{"mixture-shop",
              "asking a shop of six things for a Li-Ning shoe in red",
              {number("temperature", 2), number("weight of the best", 4),
               number("weight of the best three", 4), number("distance from exact lookup", 6)},
              {}};
  for (const double temperature : kTemperatures) {
    at::Tensor weights;
    const at::Tensor out = attend(shop.scores / temperature, shop.values, &weights);
    exact_error = difference(out, shop.exact);
    table.add({temperature, weights.max().item<double>(), std::get<0>(weights.topk(3)).sum().item<double>(),
               exact_error});
  }
  return table;
}

struct Taken {
  std::vector<int64_t> keys;  // the k largest weights, as the operator's own observation lists them
  double weight = 0;          // that they have together
  at::Tensor out;             // the mixture of their values, by weights that sum to 1 again
};

Taken take_best(const at::Tensor& logits, const at::Tensor& values, int64_t k) {
  attention::Spec spec;
  spec.scale = 1.0;
  const at::Tensor q = at::ones({1, 1, 1, 1});
  const at::Tensor keys = logits.to(at::kFloat).view({1, 1, -1, 1});
  attention::Operands call = autograd::operands(q, keys, values.view({1, 1, values.size(0), -1}));
  const attention::Observation seen = attention::observe({.top_k = k}, spec, call);
  Taken taken{seen.top_keys, 0, at::zeros({values.size(1)})};
  for (const float weight : seen.top_weights) taken.weight += static_cast<double>(weight);
  for (size_t i = 0; i < taken.keys.size(); ++i)
    taken.out += static_cast<double>(seen.top_weights[i]) / taken.weight * values[taken.keys[i]];
  return taken;
}

// The same, with the best k things alone.
Table best_lookup(const Shop& shop, bool& one_is_exact, double& cold_error) {
  Table table{
      "mixture-shop-best",
      "the same, taking the best k, whose weights are made to sum to 1 again (other: of another brand)",
      {number("temperature", 2), count("k"), text("taken"), number("weight", 4), number("from all six", 4),
       number("from exact", 6)},
      {}};
  one_is_exact = true;
  for (const double temperature : kTemperatures) {
    const at::Tensor logits = shop.scores / temperature;
    const at::Tensor all = attend(logits, shop.values);
    cold_error = 0;
    for (const int64_t k : {1, 2, 3, 4}) {
      const Taken taken = take_best(logits, shop.values, k);
      std::string things;
      for (const int64_t key : taken.keys)
        things += (things.empty() ? "" : ", ") + std::string(shop.things[static_cast<size_t>(key)]);
      const double error = difference(taken.out, shop.exact);
      table.add({temperature, k, things, taken.weight, difference(taken.out, all), error});
      one_is_exact = one_is_exact && (k > 1 || error < 1e-6);
      cold_error = std::max(cold_error, error);
    }
  }
  return table;
}

struct Words {
  const char* language;
  std::vector<std::string> query, near, far;
};

// Sums over the three places, as vectors of three words joined would give.
std::optional<Table> word_vectors(const Options& options, std::vector<double>& near,
                                  std::vector<double>& far) {
  try {
    model::find_model("e5");
  } catch (const io::Error&) {
    return std::nullopt;
  }
  options.tell("vectors of words by e5");
  const std::vector<Words> all = {
      {"English", {"food", "air", "water"}, {"kitchen", "nature", "lake"}, {"toilet", "space", "desert"}},
      {"Chinese", {"食物", "空气", "水"}, {"厨房", "自然", "湖泊"}, {"厕所", "太空", "沙漠"}}};
  const at::NoGradGuard no_gradients;
  const model::Loaded loaded = model::load("e5");
  Table table{"mixture-words",
              "dot products of e5's vectors, place by place",
              {text("language"), text("query"), text("near key"), number("dot", 3), text("far key"),
               number("dot ", 3)},
              {}};
  for (const Words& words : all) {
    std::vector<std::string> texts = words.query;
    texts.insert(texts.end(), words.near.begin(), words.near.end());
    texts.insert(texts.end(), words.far.begin(), words.far.end());
    const at::Tensor vectors = model::embed(loaded, texts).vectors.to(at::kDouble);
    double sums[2] = {};
    for (int64_t i = 0; i < 3; ++i) {
      const double one = (vectors[i] * vectors[3 + i]).sum().item<double>();
      const double other = (vectors[i] * vectors[6 + i]).sum().item<double>();
      const auto at = static_cast<size_t>(i);
      table.add({std::string(words.language), words.query[at], words.near[at], one, words.far[at], other});
      sums[0] += one;
      sums[1] += other;
    }
    near.push_back(sums[0]);
    far.push_back(sums[1]);
    table.add({std::string(words.language), std::string("all three"), std::string(""), sums[0],
               std::string(""), sums[1]});
  }
  return table;
}

}  // namespace

Result measure_mixture(const Options& options) {
  Result result;
  std::vector<double> sums, books;
  Table table = mixtures(sums, books);
  bool aim_wins = false, pull_wins_without = false;
  bool one_is_exact = false;
  double value_error = 0, exact_error = 0, cold_error = 0;
  Table errand_table = errand(aim_wins, pull_wins_without, value_error);
  const Shop shop;
  Table shop_table = soft_lookup(shop, exact_error);
  Table best_table = best_lookup(shop, one_is_exact, cold_error);
  const auto one = [](double sum) { return std::abs(sum - 1) < 1e-12; };
  result.findings = {
      {"11 hours over six books are the weights 0.18, five times, and 0.09.", std::string(kSeries) + ", 1.3",
       say("%.4f and %.4f; they sum to 1, the rounded ones to %.2f", books.front(), books.back(),
           5 * 0.18 + 0.09),
       decided(std::abs(books.front() - 0.18) < 0.005 && std::abs(books.back() - 0.09) < 0.005)},
      {"transformer = 0.7 transformer + 0.1 pole + 0.1 fallen + 0.1 wires, and likewise the other.",
       std::string(kSeries) + ", 1.3", say("sums of the weights: %.2f and %.2f", sums[1], sums[2]),
       decided(one(sums[1]) && one(sums[2]))},
      {"an = 0.2 I + 0.1 ate + 0.5 an + 0.3 apple are weights of a softmax.", std::string(kSeries) + ", 1.4",
       say("they sum to %.1f; a softmax in the same proportions gives %.3f, %.3f, %.3f, %.3f", sums[3],
           table.number(14, "as attention gives it"), table.number(15, "as attention gives it"),
           table.number(16, "as attention gives it"), table.number(17, "as attention gives it")),
       decided(one(sums[3]))},
      {"A query raises the weight of what is wanted above what pulls by itself.",
       std::string(kSeries) + ", 1.3, psychology",
       say("without a will the toy has %.2f; at the strongest query salt has %.3f",
           errand_table.number(0, "toy"), errand_table.number(errand_table.rows.size() - 1, "salt")),
       decided(aim_wins && pull_wins_without)},
      {"There the weights multiply the keys.", std::string(kSeries) + ", 1.3, psychology",
       say("what comes out is the mixture of the values (3 numbers, off by %.0e); that of the keys has 2 "
           "numbers and is never "
           "made. The pull acts on the weights, as a bias",
           value_error),
       decided(value_error > 1e-5)},
      {"Attention is a soft dictionary: with falling temperature it becomes the exact one.",
       std::string(kSeries) + ", 1.3, database",
       say("at T = 1 the best three hold %.2f of the weight; at T = 0.05 the result differs from exact "
           "lookup by %.0e",
           shop_table.number(0, "weight of the best three"), exact_error),
       decided(exact_error < 1e-5)},
      {"One may take the best k alone and stays between the soft dictionary and the exact one.",
       std::string(kSeries) + ", 1.3, database",
       say("k = 1 is the exact lookup at every temperature: %s; at T = 1 the best two, three and four differ "
           "from all six by %.2f, %.2f and %.2f (the three that share second place: the earlier ones "
           "first); at T = 0.05 none differs from the exact one by more than %.0e",
           one_is_exact ? "yes" : "no", best_table.number(1, "from all six"),
           best_table.number(2, "from all six"), best_table.number(3, "from all six"), cold_error),
       decided(one_is_exact && cold_error < 1e-5)}};
  std::vector<double> near, far;
  std::optional<Table> words = word_vectors(options, near, far);
  Finding food{
      "[food, air, water] has a larger dot product with [kitchen, nature, lake] than with [toilet, space, "
      "desert].",
      std::string(kFirstArticle) + ", 2.3", "the model e5 is not installed: regard models get e5",
      Verdict::not_decided};
  if (words) {
    food.measured =
        say("English %.3f against %.3f, Chinese %.3f against %.3f", near[0], far[0], near[1], far[1]);
    if ((near[0] > far[0]) == (near[1] > far[1])) food.verdict = decided(near[0] > far[0]);
  }
  result.findings.push_back(food);
  result.notes = {
      "What a model really looks at in these sentences: regard look --model e5 --pieces '我|吃|了|一个|苹果' "
      "--token 一个."};
  Curve salt{"salt", {}, {}}, toy{"toy", {}, {}};
  for (size_t row = 0; row < errand_table.rows.size(); ++row) {
    for (Curve* curve : {&salt, &toy}) curve->x.push_back(errand_table.number(row, "strength of the query"));
    salt.y.push_back(errand_table.number(row, "salt"));
    toy.y.push_back(errand_table.number(row, "toy"));
  }
  result.plots = {{"weights of salt and toy", "strength of the query", "", false, false, {}, {salt, toy}}};
  result.tables = {std::move(table), std::move(errand_table), std::move(shop_table), std::move(best_table)};
  if (words) result.tables.push_back(std::move(*words));
  return result;
}

}  // namespace regard::lab
