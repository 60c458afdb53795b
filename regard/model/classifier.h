#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "regard/io/idx.h"
#include "regard/io/json.h"
#include "regard/model/vit.h"

namespace regard::model {

// How the numbers of a picture become what a model reads, channel by channel: (value / 255 - mean) / std.
struct PixelScale {
  std::vector<double> mean, std;
};

// Those of pictures [N, H, W] or [N, H, W, channels]; a channel that never changes has std 1.
PixelScale pixel_scale(const io::Idx& images);
// As preprocessor_config.json of Hugging Face's ViTImageProcessor, and back. Throws io::Error.
io::Json to_json(const PixelScale& scale);
PixelScale read_pixel_scale(const io::Json& json, int64_t channels, const std::string& source);

// [N, channels, H, W] float32 of the pictures with these numbers. Throws std::invalid_argument where the
// channels are not those of the scale.
at::Tensor pixels(const io::Idx& images, const std::vector<int64_t>& numbers, const PixelScale& scale);

struct LoadedClassifier {
  std::string name;  // as the user gave it
  std::unique_ptr<Vit> model;
  PixelScale scale;
};

// Whether a folder (or a name that stands for one) holds a classifier of pictures.
bool is_classifier(const std::string& name_or_path);
// A folder with config.json, preprocessor_config.json and model.safetensors. Throws io::Error.
LoadedClassifier load_classifier(const std::string& name_or_path);

}  // namespace regard::model
