#include "regard/train/data_sets.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "regard/io/atomic_file.h"
#include "regard/io/error.h"
#include "regard/io/gzip.h"
#include "regard/io/mapped_file.h"
#include "regard/io/suggest.h"
#include "regard/io/unzip.h"
#include "regard/train/generated_task.h"
#include "regard/train/image_sets.h"
#include "regard/train/prepare_text.h"
#include "regard/train/shapes.h"
#include "regard/train/zipf_markov.h"

namespace regard::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFashionFolder = "/usr/share/datasets/fashion-mnist";
constexpr const char* kDigitsEntry = "sklearn/datasets/data/digits.csv.gz";

// How many texts a generated task has, and how many words the made-up language, by part.
struct Part {
  const char* name;
  int64_t texts, words;
};
constexpr Part kParts[] = {{"train", 10'000, 1'000'000}, {"valid", 500, 20'000}, {"test", 500, 20'000}};
constexpr int64_t kWordsOfALine = 20;

struct ParallelSet {
  std::string_view name;
  PairOptions options;
  int64_t sources;  // of valid, and of test
  bool chinese;
};
constexpr ParallelSet kParallel[] = {{"tatoeba-en-fr", {40, 45, true}, 2000, false},
                                     {"tatoeba-en-zh", {0, 0, false}, 1000, true}};

enum class Split : uint8_t { none, characters, lines };
struct BookSet {
  std::string_view name;
  Book book;
  Split split;
};
constexpr BookSet kBooks[] = {
    {"tinyshakespeare", Book::plain, Split::characters}, {"moby_dick", Book::plain, Split::none},
    {"shuihuzhuan", Book::chinese, Split::lines},        {"hongloumeng", Book::chinese_stops, Split::lines},
    {"pride_and_prejudice", Book::english, Split::none}, {"war_and_peace", Book::english, Split::none}};

template <class Sets>
auto* find(const Sets& sets, std::string_view name) {
  const auto found =
      std::find_if(std::begin(sets), std::end(sets), [&](const auto& set) { return set.name == name; });
  return found == std::end(sets) ? nullptr : &*found;
}

void create_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) io::fail_errno(folder.string(), "cannot be created", error.value());
}

// Files of a folder that are written one by one.
class Writer {
 public:
  explicit Writer(fs::path folder) : folder_(std::move(folder)) { create_folder(folder_); }
  void write(const std::string& name, std::string_view text) {
    io::write_file_atomically(folder_ / name, text);
    written.push_back(folder_ / name);
  }
  std::vector<fs::path> written;

 private:
  fs::path folder_;
};

std::vector<fs::path> image_files(const fs::path& folder) {
  std::vector<fs::path> out;
  for (const char* part : {"train", "test"}) {
    out.push_back(folder / (std::string(part) + "-images-idx3-ubyte.gz"));
    out.push_back(folder / (std::string(part) + "-labels-idx1-ubyte.gz"));
  }
  return out;
}

std::vector<fs::path> get_digits(const fs::path& folder, const io::OnProgress& progress) {
  const fs::path wheel = io::fetch_wheel(digits_wheel(), progress);
  const fs::path unpacked = folder / ".digits";
  io::unzip(wheel, kDigitsEntry, unpacked);
  const fs::path csv = unpacked / "digits.csv.gz";
  const std::vector<std::byte> text = io::gunzip(io::MappedFile::open(csv).bytes(), csv.string());
  fs::remove_all(unpacked);
  write_images(folder, digits({reinterpret_cast<const char*>(text.data()), text.size()}, "digits.csv"));
  return image_files(folder);
}

std::vector<fs::path> prepare_pairs(const ParallelSet& set, const fs::path& from, const fs::path& folder,
                                    uint64_t seed) {
  std::string text = io::read_text(from);
  if (set.chinese) text = simplified(text);
  const PairSplit split = split_pairs(read_pairs(text, from.string(), set.options), set.sources, seed);
  Writer writer(folder);
  writer.write("train.tsv", to_tsv(split.train));
  writer.write("valid.tsv", to_tsv(split.valid));
  writer.write("test.tsv", to_tsv(split.test));
  return writer.written;
}

std::vector<fs::path> prepare_book(const BookSet& set, const fs::path& from, const fs::path& folder) {
  const std::string text = clean_book(io::read_text(from), set.book, from.string());
  const std::string name(set.name);
  Writer writer(folder);
  if (set.split == Split::none) {
    writer.write(name + ".txt", text);
    return writer.written;
  }
  const TextSplit split = set.split == Split::characters ? split_by_characters(text) : split_by_lines(text);
  writer.write(name + ".train.txt", split.train);
  writer.write(name + ".valid.txt", split.valid);
  writer.write(name + ".test.txt", split.test);
  return writer.written;
}

// One that is made: no more to say of its licence than that there is nothing to say.
DataSet made(const std::string& name, const std::string& what, const char* size, const char* preparation) {
  return {name, what, Origin::made, size, "CC0-1.0", "", "regard data make " + name, preparation};
}

std::vector<DataSet> made_sets() {
  std::vector<DataSet> out = {
      made("shapes", "drawn scenes, captions in English and Chinese, questions with one-word answers",
           "9,500 pictures of 32 x 32, 55,000 questions", "train, valid and test share no scene")};
  for (const KnownTask& task : known_tasks())
    out.push_back(made(task.name, std::string("generated task: ") + task.what, "10,000, 500 and 500 lines",
                       "lines \"source TAB target\"; recipes make the same texts by themselves"));
  out.push_back(made(kZipfMarkov, "a made-up language of 20,000 words whose frequencies fall as 1 / rank",
                     "1,000,000, 20,000 and 20,000 words",
                     "20 words a line; recipes make the same text by themselves"));
  return out;
}

[[noreturn]] void other_origin(const DataSet& set, const char* asked) {
  throw std::invalid_argument("'" + set.name + "' is " + name(set.origin) + ", so that it cannot be " +
                              asked);
}

}  // namespace

const char* name(Origin origin) {
  switch (origin) {
    case Origin::made:
      return "made from a seed";
    case Origin::package:
      return "in a Python package";
    case Origin::system:
      return "in a Debian package";
    case Origin::web:
      return "on the web";
    case Origin::as_is:
      return "on the web, for other programs to prepare";
  }
  return "";
}

const io::Wheel& digits_wheel() {
  static const io::Wheel wheel = {
      "scikit-learn", "scikit_learn-1.9.1-cp311-cp311-manylinux_2_27_x86_64.manylinux_2_28_x86_64.whl",
      9315422, "52a0703bbc07ad27f560fa63fa68e4c54dd735bfbbf65b4dd3c225dc7547b6df"};
  return wheel;
}

const std::vector<DataSet>& data_sets() {
  static const std::string kPairs =
      "NFC, odd spaces and curly quotes made plain, each pair once; pairs that share a sentence stay in one "
      "part";
  static const std::string kNovel =
      "Gutenberg's header and footer away; line ends, blanks at ends of lines, runs of empty lines";
  static const std::vector<DataSet> got = {
      {"digits", "handwritten digits, 8 x 8, grey levels 0 to 16", Origin::package, "1,297 and 500 pictures",
       "CC-BY-4.0 (data), BSD-3-Clause (package)",
       "E. Alpaydin and C. Kaynak 1998, Optical Recognition of Handwritten Digits, UCI Machine Learning "
       "Repository",
       "scikit-learn 1.9.1, its digits.csv.gz", "in the order of NumPy's default_rng(0).permutation"},
      {"fashion-mnist", "pictures of clothes, 28 x 28, ten classes", Origin::system,
       "10,000 and 2,000 pictures", "MIT, Copyright 2017 Zalando SE",
       "H. Xiao, K. Rasul, R. Vollgraf 2017, arXiv 1708.07747",
       "apt-get install dataset-fashion-mnist (31 MB)",
       "1,000 and 200 of each class by NumPy's default_rng(7)"},
      {"tatoeba-en-fr", "English and French sentences", Origin::web, "167,000 pairs, 11 MB", "CC-BY-2.0-FR",
       "tatoeba.org and www.manythings.org/anki",
       "https://www.manythings.org/anki/fra-eng.zip, in it fra.txt",
       kPairs + "; straight quotes; at most 40 and 45 words; 2,000 sources each to valid and test"},
      {"tatoeba-en-zh", "English and Mandarin sentences", Origin::web, "32,000 pairs, 2 MB", "CC-BY-2.0-FR",
       "tatoeba.org and www.manythings.org/anki",
       "https://www.manythings.org/anki/cmn-eng.zip, in it cmn.txt",
       kPairs + "; simplified by OpenCC; 1,000 sources each to valid and test"},
      {"tinyshakespeare", "speeches of Shakespeare's plays, English", Origin::web, "1.1 MB", "public domain",
       "collected by A. Karpathy for char-rnn",
       "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",
       "90, 5 and 5 percent of its characters"},
      {"moby_dick", "H. Melville, Moby Dick (1851)", Origin::web, "1.2 MB", "public domain",
       "Project Gutenberg", "https://www.gutenberg.org/ebooks/2701 (plain text)",
       "Gutenberg's header and footer away; line ends"},
      {"shuihuzhuan", "Shi Nai'an, Water Margin (14th century), simplified Chinese", Origin::web, "2.5 MB",
       "public domain", "", "https://github.com/tennessine/corpus",
       "indentation and empty lines away; 90, 5, 5 percent of lines"},
      {"hongloumeng", "Cao Xueqin, Dream of the Red Chamber (18th century), simplified Chinese", Origin::web,
       "2.5 MB", "public domain", "", "https://github.com/tennessine/corpus",
       "indentation and empty lines away; 90, 5, 5 percent of lines"},
      {"pride_and_prejudice", "J. Austen, Pride and Prejudice (1813)", Origin::web, "0.7 MB", "public domain",
       "Project Gutenberg", "https://www.gutenberg.org/ebooks/1342 (plain text)", kNovel},
      {"war_and_peace", "L. Tolstoy, War and Peace, translated by L. and A. Maude (1922)", Origin::web,
       "3.2 MB", "public domain", "Project Gutenberg", "https://www.gutenberg.org/ebooks/2600 (plain text)",
       kNovel},
      {"tinystories", "short stories for children, written by GPT-4", Origin::as_is, "2 GB",
       "CDLA-Sharing-1.0", "R. Eldan and Y. Li 2023, arXiv 2305.07759",
       "https://huggingface.co/datasets/roneneldan/TinyStories",
       "stories parted by lines <|endoftext|>, for data.documents"},
      {"gap", "passages of Wikipedia with a pronoun and two names that it may mean", Origin::as_is,
       "4,454 passages, 2 MB", "Apache-2.0 (set), CC-BY-SA-3.0 (passages)",
       "K. Webster, M. Recasens, V. Axelrod, J. Baldridge 2018, arXiv 1810.05201; each line has its page",
       "https://github.com/google-research-datasets/gap-coreference", ""},
      {"winograd", "Winograd schemas: sentences whose pronoun only the meaning tells", Origin::as_is,
       "285 sentences", "CC-BY-4.0", "H. Levesque, E. Davis, L. Morgenstern 2012",
       "https://cs.nyu.edu/~davise/papers/WinogradSchemas/WSCollection.xml", ""},
      {"winograd-tokens", "Winograd schemas in several languages, with the places of their tokens",
       Origin::as_is, "273 English and 83 French sentences", "Apache-2.0",
       "A. Tikhonov, M. Ryabinin 2021, arXiv 2106.12066",
       "https://github.com/yandex-research/crosslingual_winograd, in it dataset.tsv",
       "the rows \"original\""},
      {"ud-english-ewt", "English sentences with parts of speech and dependencies", Origin::as_is,
       "4,078 sentences in dev and test", "CC-BY-SA-4.0", "Universal Dependencies, universaldependencies.org",
       "https://github.com/UniversalDependencies/UD_English-EWT", ""},
      {"ud-chinese-gsdsimp", "simplified Chinese sentences with parts of speech and dependencies",
       Origin::as_is, "1,000 sentences in dev and test", "CC-BY-SA-4.0",
       "Universal Dependencies, universaldependencies.org",
       "https://github.com/UniversalDependencies/UD_Chinese-GSDSimp", ""},
      {"nlvr", "drawn scenes of boxes, a sentence about each, true or false", Origin::as_is,
       "2,964 scenes in dev, test and hidden", "CC-BY-4.0", "A. Suhr, M. Lewis, J. Yeh, Y. Artzi 2017, ACL",
       "https://github.com/lil-lab/nlvr", ""},
      {"photos", "two photographs, of a temple and of a flower", Origin::as_is, "640 x 427 pixels each",
       "CC-BY-2.0", "danielbuechele and vultilion, flickr.com",
       "scikit-learn 1.9.1 (a Python package), in it sklearn/datasets/images",
       "the middle cut out, 224 x 224 by bicubic interpolation"},
      {"rxnmapper-albert",
       "an ALBERT of 0.8 M parameters over chemical reactions, one head of which maps atoms", Origin::as_is,
       "3 MB", "MIT", "P. Schwaller and others 2021, Science Advances 7, eabe4166",
       "rxnmapper 0.4.3 (a Python package), in it models/transformers/albert_heads_8_uspto_all_1310k",
       "pytorch_model.bin written as safetensors"}};
  static const std::vector<DataSet> all = [] {
    std::vector<DataSet> out = made_sets();
    out.insert(out.end(), got.begin(), got.end());
    return out;
  }();
  return all;
}

const DataSet& data_set(std::string_view name) {
  std::vector<std::string> names;
  std::string list;
  for (const DataSet& set : data_sets()) {
    if (set.name == name) return set;
    names.push_back(set.name);
    list += (list.empty() ? "" : ", ") + set.name;
  }
  const std::string near = io::suggest(name, names);
  throw std::invalid_argument("there is no data set '" + std::string(name) + "'; " +
                              (near.empty() ? "there are " + list : "did you mean '" + near + "'?"));
}

namespace {

// A generated task as lines of parallel text, with the options that GeneratedTask begins with.
std::vector<fs::path> make_task(const DataSet& set, const fs::path& folder, uint64_t seed) {
  GeneratedTask task;
  task.kind = generated_named(set.name);
  task.seed = seed;
  Writer writer(folder);
  uint64_t stream = 0;
  for (const Part& part : kParts) {
    std::vector<WithReferences> lines;
    for (TextPair& text : generate(task, part.texts, stream++))
      lines.push_back({text.source, std::move(text.references)});
    writer.write(std::string(part.name) + ".tsv", to_tsv(lines));
  }
  return writer.written;
}

std::vector<fs::path> make_language(const fs::path& folder, uint64_t seed) {
  Writer writer(folder);
  uint64_t stream = 0;
  for (const Part& part : kParts) {
    std::string text;
    int64_t words = 0;
    for (const int32_t word : zipf_markov({.seed = seed}, part.words, stream++))
      text += std::to_string(word) + (++words % kWordsOfALine == 0 ? '\n' : ' ');
    writer.write(std::string(part.name) + ".txt", text);
  }
  return writer.written;
}

}  // namespace

std::vector<fs::path> make(const DataSet& set, const fs::path& folder, uint64_t seed) {
  if (set.origin != Origin::made) other_origin(set, "made");
  if (set.name == kZipfMarkov) return make_language(folder, seed);
  if (set.name != "shapes") return make_task(set, folder, seed);
  create_folder(folder);
  write_shapes(folder, make_shapes({.seed = seed}));
  std::vector<fs::path> out;
  for (const char* part : {"train", "valid", "test"}) {
    for (const char* file : {".images-idx4-ubyte.gz", ".captions.tsv", ".qa.tsv"})
      out.push_back(folder / (std::string(part) + file));
  }
  return out;
}

std::vector<fs::path> get(const DataSet& set, const fs::path& folder, const fs::path& from,
                          const io::OnProgress& progress) {
  if (set.origin == Origin::package) {
    create_folder(folder);
    return get_digits(folder, progress);
  }
  if (set.origin != Origin::system) other_origin(set, "taken from a package");
  const fs::path source = from.empty() ? fs::path(kFashionFolder) : from;
  if (!fs::is_directory(source))
    io::fail(source.string(), "there is no such folder: " + set.address +
                                  " puts the files there, or name a folder that "
                                  "holds them by --from");
  create_folder(folder);
  write_images(folder, fashion(source));
  return image_files(folder);
}

std::vector<fs::path> prepare(const DataSet& set, const fs::path& from, const fs::path& folder,
                              uint64_t seed) {
  if (const ParallelSet* pairs = find(kParallel, set.name)) return prepare_pairs(*pairs, from, folder, seed);
  if (const BookSet* book = find(kBooks, set.name)) return prepare_book(*book, from, folder);
  other_origin(set, "prepared from a file");
}

}  // namespace regard::train
