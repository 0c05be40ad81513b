// Counts words of texts with several readers and several counters. Every reader sends to every
// counter, all occurrences of a word to the same one. So each counter's counts are final, and
// nothing has to be merged. As one process, or as one for each of them:
//
//     keyed_wordcount text.txt
//     amalgam run -c groups.json -- keyed_wordcount text.txt
//
// where groups.json gives the groups R0, R1, C0, C1 and C2 an endpoint each. With --into FOLDER
// before the texts, each counter writes a file into that folder, and prints nothing.
#include <cctype>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <amalgam/flow.hpp>

namespace {

constexpr std::size_t readers = 2;
constexpr std::size_t counters = 3;

/// Sends the words of its share of the lines.
struct reader : am::source<std::string> {
    reader(std::vector<std::string> of, std::size_t own) : files(std::move(of)), number(own) {}

    void generate(am::outlet<std::string>& out) {
        std::size_t line_number = 0;
        for (const std::string& file : files) {
            std::ifstream in(file);
            if (!in) throw std::runtime_error("the file \"" + file + "\" cannot be read");
            for (std::string line; std::getline(in, line); ++line_number)
                if (line_number % readers == number) send_words(line, out);
        }
    }

    static void send_words(const std::string& line, am::outlet<std::string>& out) {
        std::string word;
        for (const char c : line + ' ') {
            if (std::isalpha(static_cast<unsigned char>(c))) {
                word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
            } else if (!word.empty()) {
                out.send(word);
                word.clear();
            }
        }
    }

    std::vector<std::string> files;
    std::size_t number;
};

/// Counts, and writes its counts once no reader sends any more.
struct counter : am::sink<std::string> {
    explicit counter(std::string into) : file(std::move(into)) {}

    void consume(const std::string& word) { ++counts[word]; }
    void end() {
        std::ofstream written;
        if (!file.empty()) written.open(file);
        std::ostream& out = file.empty() ? std::cout : written;
        // Other counters write at the same time: write each line at once.
        for (const auto& [word, count] : counts)
            out << std::to_string(count) + ' ' + word + '\n';
        if (!out.flush()) throw std::runtime_error("the file \"" + file + "\" cannot be written");
    }

    std::string file;  // Empty: standard output.
    std::map<std::string, std::size_t> counts;
};

}  // namespace

int main(int argc, char** argv) {
    std::vector<std::string> texts(argv + 1, argv + argc);
    std::string folder;
    if (texts.size() > 1 && texts[0] == "--into") {
        folder = texts[1];
        texts.erase(texts.begin(), texts.begin() + 2);
    }
    if (texts.empty()) {
        std::fprintf(stderr, "usage: keyed_wordcount [--into FOLDER] FILE...\n");
        return 2;
    }
    am::graph count;
    std::vector<am::block<void, std::string>> left;
    for (std::size_t i = 0; i < readers; ++i) {
        left.push_back(count.add<reader>("reader" + std::to_string(i), texts, i));
        count.group("R" + std::to_string(i)).add(left.back());
    }
    std::vector<am::block<std::string, void>> right;
    for (std::size_t i = 0; i < counters; ++i) {
        const std::string name = "counter" + std::to_string(i);
        right.push_back(count.add<counter>(name, folder.empty() ? "" : folder + "/" + name));
        count.group("C" + std::to_string(i)).add(right.back());
    }
    count.all_to_all(left, right, am::by_key([](const std::string& word) { return word; }));
    return am::run_main(count);
}
