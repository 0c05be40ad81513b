// Counts words in three nodes: one reads lines, one counts, one merges and prints. The same
// program runs in one process, or as three over any transport:
//
//     wordcount text.txt
//     amalgam run -c wordcount.json -- wordcount text.txt
#include <chrono>
#include <cstdio>
#include <fstream>
#include <string>
#include <variant>
#include <vector>

#include <unistd.h>

#include <amalgam/flow.hpp>

#include "options.hpp"
#include "text.hpp"

namespace wordcount {
namespace {

using steady = std::chrono::steady_clock;

double seconds_since(steady::time_point then) {
    return std::chrono::duration<double>(steady::now() - then).count();
}

/// Emits the lines of all files, `repeat` times.
class read_lines : public am::source<std::string> {
public:
    explicit read_lines(const options& asked) : asked_(asked) {}

    /// Opens every file first: better to report a wrong name now than in an hour.
    void start(const am::place&) {
        for (const std::string& file : asked_.files)
            line_reader looked_at(file);
    }

    void generate(am::outlet<std::string>& out) {
        std::string line;
        for (std::uint64_t round = 0; round < asked_.repeat; ++round) {
            for (const std::string& file : asked_.files) {
                line_reader reader(file);
                for (std::string_view next; reader.next(next);) {
                    line.assign(next);  // Reuses its memory: send() copies it.
                    out.send(line);
                    ++lines_;
                    if (asked_.progress && (lines_ & 0xfff) == 0) show_progress(round);
                }
            }
        }
    }

private:
    void show_progress(std::uint64_t round) {
        if (seconds_since(last_shown_) < 1) return;
        last_shown_ = steady::now();
        std::fprintf(stderr, "wordcount: %llu lines read, %llu %% done\n",
                     static_cast<unsigned long long>(lines_),
                     static_cast<unsigned long long>(100 * round / asked_.repeat));
    }

    const options& asked_;
    std::uint64_t lines_ = 0;
    steady::time_point last_shown_ = steady::now();
};

/// Output of a counter: one word, or the totals of its lines.
using finding = std::variant<word_count, totals>;

/// Counts the words of its lines, and emits the counts at the end.
class count_words : public am::stage<std::string, finding> {
public:
    void process(const std::string& line, am::outlet<finding>&) { counter_.add_line(line); }

    void end(am::outlet<finding>& out) {
        counter_.words().for_each([&out](std::string_view word, std::uint64_t count) {
            out.send(word_count{std::string(word), count});
        });
        out.send(counter_.sum());
    }

private:
    counter counter_;
};

/// Adds up the counters' output, and prints it.
class merge_counts : public am::sink<finding> {
public:
    explicit merge_counts(const options& asked) : asked_(asked) {}

    void start(const am::place&) { started_ = steady::now(); }

    void consume(const finding& found) {
        if (const auto* word = std::get_if<word_count>(&found)) {
            words_.add(word->word, word->count);
        } else {
            sum_ += std::get<totals>(found);
        }
    }

    void end() { print(asked_, sum_, words_, seconds_since(started_)); }

    static void print(const options& asked, const totals& sum, const word_table& words,
                      double seconds) {
        std::fputs(to_text(sum, words, asked.top).c_str(), stdout);
        std::fflush(stdout);
        if (!asked.result.empty()) std::ofstream(asked.result) << to_text(sum, words, words.size());
        if (!asked.figures.empty())
            std::ofstream(asked.figures) << sum.lines << ' ' << sum.bytes << ' ' << seconds << '\n';
    }

private:
    const options& asked_;
    totals sum_;
    word_table words_;
    steady::time_point started_;
};

/// The same count by a plain loop, to compare results with.
void count_in_a_loop(const options& asked) {
    auto started = steady::now();
    counter all;
    for (std::uint64_t round = 0; round < asked.repeat; ++round) {
        for (const std::string& file : asked.files) {
            line_reader reader(file);
            for (std::string_view line; reader.next(line);)
                all.add_line(line);
        }
    }
    merge_counts::print(asked, all.sum(), all.words(), seconds_since(started));
}

int count_in_a_graph(const options& asked) {
    am::graph graph;
    auto lines = graph.add<read_lines>("lines", asked);
    auto count = graph.add<count_words>("count");
    auto merge = graph.add<merge_counts>("merge", asked);
    graph.pipeline(lines, count, merge);
    graph.group("G1").add(lines);
    graph.group("G2").add(count);
    graph.group("G3").add(merge);
    return am::run_main(graph);
}

}  // namespace
}  // namespace wordcount

int main(int argc, char** argv) {
    wordcount::options asked;
    std::string wrong = wordcount::read_options({argv + 1, argv + argc}, asked);
    if (!wrong.empty()) {
        std::fprintf(stderr, "wordcount: %s\n", wrong.c_str());
        return 2;
    }
    try {
        if (!asked.loop) return wordcount::count_in_a_graph(asked);
        wordcount::count_in_a_loop(asked);
        return 0;
    } catch (const std::exception& failed) {
        std::fprintf(stderr, "wordcount: %s\n", failed.what());
        return 1;
    }
}
