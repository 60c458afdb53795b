#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "regard/io/idx.h"

// Pictures with labels, as their packages have them, made into the sets that the documents speak of.
namespace regard::train {

struct LabelledImages {
  io::Idx images;  // [N, height, width] or [N, height, width, channels]
  io::Idx labels;  // [N]
};
// Throws io::Error where the files are no pictures [N, height, width] or [N, height, width, channels] and
// labels [N] of them, or hold none.
LabelledImages read_labelled(const std::filesystem::path& images, const std::filesystem::path& labels);

struct ImageSplit {
  LabelledImages train, test;
};

// scikit-learn's digits.csv: lines of 64 grey levels 0 to 16 and a digit. All 1,797 in the order of
// numpy.random.default_rng(0).permutation, the first 1,297 to train. Throws io::Error naming the line that is
// wrong.
ImageSplit digits(std::string_view csv, const std::string& source);

// Of a folder with Fashion-MNIST's four files (train-*, t10k-*): 1,000 pictures of each class to train and
// 200 to test, chosen by numpy.random.default_rng(7), class by class, in their own order. Throws io::Error.
ImageSplit fashion(const std::filesystem::path& folder);

// FOLDER/train-images-idx3-ubyte.gz and its three companions.
void write_images(const std::filesystem::path& folder, const ImageSplit& split);

}  // namespace regard::train
