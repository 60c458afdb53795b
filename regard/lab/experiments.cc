#include "regard/lab/experiment.h"
#include "regard/lab/measures.h"

// What there is, in the order in which the articles come to it.
namespace regard::lab {

const std::vector<Experiment>& experiments() {
  static const std::string first = kFirstArticle;
  static const std::string series = kSeries;
  static const std::string essence = kEssence;
  static const std::vector<Experiment> all = {
      {"path", "reach of gradients, sequential steps, time of layers",
       "Any two positions are one step apart by attention, n steps by an RNN.",
       first + ", 3; " + series + ", 1.1", false, measure_path},
      {"length", "an RNN translator with and without attention",
       "Without attention a text must pass through one state, and long ones do not.",
       first + "; " + series + ", 1.3", true, measure_length},
      {"mixture", "the worked examples", "An output is a mixture of values whose weights sum to 1.",
       series + ", 1.3 and 1.4; " + first + ", 2.3", false, measure_mixture},
      {"parameters", "the share of Q, K and V in a model",
       "The matrices of Q, K and V are more than half of a large model.", series + ", 1.3", false,
       measure_parameters},
      {"cache", "what a decoder keeps", "The storage of Q, K and V grows with the context.",
       series + ", 1.3 and 4.1", false, measure_cache},
      {"projections", "why W_Q, W_K and W_V",
       "Without projections scores are symmetric and their diagonal wins.", series + ", 2.1", false,
       measure_projections},
      {"frozen", "what is learned and what is made anew",
       "W_Q, W_K and W_V are learned in training and fixed in use.", series + ", 2.1", true, measure_frozen},
      {"masks", "two meanings of a mask", "Masked scores become minus infinity, or -1e9.",
       series + ", 2.2; " + essence + ", 3.1 and 3.2", false, measure_masks},
      {"scores", "dot, scaled, cosine, general, additive, concat",
       "Similarity may be a product, a sum, a concatenation, a cosine.",
       series + ", 2.3; " + essence + ", 1.2", true, measure_scores},
      {"softmax", "passes over memory, rank, zeros",
       "Softmax in two loops; it raises the rank of the scores.", series + ", 2.4", false, measure_softmax},
      {"dispersion", "softmax over more and more keys",
       "Softmax spreads its weight as texts grow; log n cures it.", series + ", 2.4 and 2.5", false,
       measure_dispersion},
      {"scaling", "why 1 / sqrt(d_k)",
       "Without the scale logits grow with d_k, softmax saturates and gradients vanish.",
       series + ", 2.5; " + essence + ", 1.2", true, measure_scaling},
      {"heads", "1 to 16 heads, with dropout", "Eight heads do best; too many overfit unless dropout helps.",
       essence + ", 2.2", true, measure_heads},
      {"warm-up", "even attention and its cure",
       "Bad first weights or too high a rate make attention even; Xavier and warm-up cure it.",
       essence + ", 4.2", true, measure_warmup},
      {"diversity", "the sign of the diversity term", "A term of the loss keeps heads different.",
       essence + ", 4.2", true, measure_diversity},
      {"layout", "which axis is the batch", "A module called with [batch, length, d] attends along the text.",
       essence + ", 5.2", false, measure_layout}};
  return all;
}

}  // namespace regard::lab
