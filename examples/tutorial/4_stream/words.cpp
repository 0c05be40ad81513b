// Counts the words of all texts in a store, in one process or in several:
//     kv_words
//     amalgam run -c groups.json -- kv_words
#include <cctype>
#include <cstddef>
#include <cstdio>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <amalgam/flow.hpp>

#include "../3_found/remote_store.hpp"

using word_counts = std::map<std::string, std::size_t>;

/// Sends the name of each text.
struct list_texts : am::source<std::string> {
    explicit list_texts(remote_store& from) : texts(from) {}
    void generate(am::outlet<std::string>& out) {
        for (const std::string& name : texts.names(""))
            out.send(name);
    }
    remote_store& texts;
};

/// Gets the text of each name, and sends the counts of its words.
struct count_words : am::stage<std::string, word_counts> {
    explicit count_words(remote_store& from) : texts(from) {}
    void process(const std::string& name, am::outlet<word_counts>& out) {
        word_counts counts;
        std::string word;
        std::vector<char> text = texts.get(name);
        text.push_back(' ');
        for (const char c : text) {
            if (std::isalpha(static_cast<unsigned char>(c)))
                word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
            else if (!word.empty())
                ++counts[std::exchange(word, {})];
        }
        out.send(std::move(counts));
    }
    remote_store& texts;
};

/// Adds them up, and prints those that occur more than once.
struct print_sum : am::sink<word_counts> {
    void consume(const word_counts& counts) {
        for (const auto& [word, count] : counts)
            all[word] += count;
    }
    void end() {
        for (const auto& [word, count] : all)
            if (count > 1) std::printf("%zu %s\n", count, word.c_str());
    }
    word_counts all;
};

int main() {
    try {
        remote_store texts("texts");
        am::graph graph;
        auto list = graph.add<list_texts>("list", texts);
        std::vector<am::block<std::string, word_counts>> workers;
        for (const char* name : {"count.0", "count.1"})
            workers.push_back(graph.add<count_words>(name, texts));
        auto print = graph.add<print_sum>("print");
        graph.pipeline(list, graph.farm(workers, am::on_demand(1)), print);

        graph.group("names").add(list);
        graph.group("counts").add(workers[0], workers[1]);
        graph.group("sum").add(print);
        return am::run_main(graph);
    } catch (const am::error& why) {
        std::fprintf(stderr, "kv_words: %s\n", why.what());
        return 1;
    }
}
