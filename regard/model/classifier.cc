#include "regard/model/classifier.h"

#include <ATen/ATen.h>

#include <cmath>
#include <filesystem>
#include <stdexcept>
#include <system_error>

#include "regard/io/error.h"
#include "regard/io/model_folder.h"
#include "regard/model/registry.h"
#include "regard/model/weight_file.h"

namespace regard::model {
namespace {

constexpr double kBrightest = 255;

int64_t channels_of(const io::Idx& images) {
  return images.shape.size() == 4 ? images.shape[3] : 1;
}

std::vector<double> numbers(const io::Json& json, const char* field, int64_t count, double least,
                            const std::string& source) {
  std::vector<double> out;
  for (const io::Json& value : io::require_array(json, field, source)) {
    if (!value.is_number() || !(value.get<double>() >= least))
      io::fail(source, std::string(field) + " holds " + io::describe(value));
    out.push_back(value.get<double>());
  }
  if (static_cast<int64_t>(out.size()) != count)
    io::fail(source, std::string(field) + " has " + std::to_string(out.size()) +
                         " numbers; num_channels is " + std::to_string(count));
  return out;
}

}  // namespace

PixelScale pixel_scale(const io::Idx& images) {
  const auto channels = static_cast<size_t>(channels_of(images));
  std::vector<double> sum(channels), squares(channels);
  for (size_t i = 0; i < images.values.size(); ++i) {
    const double value = images.values[i] / kBrightest;
    sum[i % channels] += value;
    squares[i % channels] += value * value;
  }
  PixelScale out;
  const auto count = static_cast<double>(images.values.size() / channels);
  for (size_t c = 0; c < channels; ++c) {
    const double mean = sum[c] / count;
    const double variance = squares[c] / count - mean * mean;
    out.mean.push_back(mean);
    out.std.push_back(variance > 1e-12 ? std::sqrt(variance) : 1.0);
  }
  return out;
}

io::Json to_json(const PixelScale& scale) {
  return {{"image_processor_type", "ViTImageProcessor"},
          {"do_resize", false},
          {"do_rescale", true},
          {"rescale_factor", 1 / kBrightest},
          {"do_normalize", true},
          {"image_mean", scale.mean},
          {"image_std", scale.std}};
}

PixelScale read_pixel_scale(const io::Json& json, int64_t channels, const std::string& source) {
  const double factor = io::number_or(json, "rescale_factor", 1 / kBrightest, 0, 1, source);
  if (std::abs(factor * kBrightest - 1) > 1e-6) io::fail(source, "rescale_factor is not 1 / 255");
  return {numbers(json, "image_mean", channels, -1e6, source),
          numbers(json, "image_std", channels, 1e-9, source)};
}

at::Tensor pixels(const io::Idx& images, const std::vector<int64_t>& numbers, const PixelScale& scale) {
  const int64_t height = images.shape[1], width = images.shape[2], channels = channels_of(images);
  if (static_cast<size_t>(channels) != scale.mean.size()) {
    throw std::invalid_argument("the pictures have " + std::to_string(channels) + " channels, the model " +
                                std::to_string(scale.mean.size()));
  }
  at::Tensor out = at::empty({static_cast<int64_t>(numbers.size()), channels, height, width}, at::kFloat);
  auto* to = out.mutable_data_ptr<float>();
  const int64_t area = height * width;
  for (const int64_t number : numbers) {
    const uint8_t* from = images.values.data() + number * area * channels;
    for (int64_t c = 0; c < channels; ++c) {
      const double mean = scale.mean[static_cast<size_t>(c)], std = scale.std[static_cast<size_t>(c)];
      for (int64_t i = 0; i < area; ++i)
        *to++ = static_cast<float>((from[i * channels + c] / kBrightest - mean) / std);
    }
  }
  return out;
}

bool is_classifier(const std::string& name_or_path) {
  const ModelLocation location = find_model(name_or_path);
  if (location.format != ModelFormat::folder) return false;
  const std::filesystem::path config = location.path / "config.json";
  std::error_code error;
  return std::filesystem::exists(config, error) && is_vit_config(io::read_json(config), config.string());
}

LoadedClassifier load_classifier(const std::string& name_or_path) {
  const ModelLocation location = find_model(name_or_path);
  if (location.format != ModelFormat::folder)
    io::fail(location.path.string(), "this is no folder; a classifier is a folder with config.json");
  const auto folder = std::make_shared<const io::ModelFolder>(io::ModelFolder::open(location.path));
  const VitConfig config = read_vit(folder->config(), folder->config_source());
  const std::string processor = (location.path / "preprocessor_config.json").string();
  const auto scale = folder->json("preprocessor_config.json");
  if (!scale) io::fail(processor, "there is no such file; it says how the pictures are normalised");
  return {name_or_path, std::make_unique<Vit>(config, WeightFile(folder)),
          read_pixel_scale(*scale, config.channels, processor)};
}

}  // namespace regard::model
