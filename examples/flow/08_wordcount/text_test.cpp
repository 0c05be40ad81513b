#include "text.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/core.hpp>

#include "options.hpp"
#include "temp_folder.hpp"

namespace wordcount {
namespace {

std::map<std::string, std::uint64_t> words_of(const counter& counted) {
    std::map<std::string, std::uint64_t> words;
    counted.words().for_each(
        [&](std::string_view word, std::uint64_t count) { words[std::string(word)] = count; });
    return words;
}

TEST(counter, words_are_runs_of_letters_digits_and_bytes_past_ascii) {
    counter counted;
    counted.add_line("The cat, the GPL-3 and Übung;");
    counted.add_line("");
    counted.add_line("  x");
    EXPECT_EQ(words_of(counted), (std::map<std::string, std::uint64_t>{{"the", 2},
                                                                       {"cat", 1},
                                                                       {"gpl", 1},
                                                                       {"3", 1},
                                                                       {"and", 1},
                                                                       {"\xc3\x9c"
                                                                        "bung",
                                                                        1},
                                                                       {"x", 1}}));
    EXPECT_EQ(counted.sum(), (totals{.lines = 3, .words = 8, .bytes = 31 + 1 + 4}));
}

TEST(word_table, counts_as_a_map_does_however_many_words_there_are) {
    word_table table;
    std::map<std::string, std::uint64_t> model;
    amalgam::seeded_random random(1);
    for (int i = 0; i < 50000; ++i) {
        std::string word = "w" + std::to_string(random.below(9000) * random.below(9000));
        table.add(word, i % 3 + 1);
        model[word] += static_cast<std::uint64_t>(i % 3 + 1);
    }
    EXPECT_EQ(table.size(), model.size());
    table.for_each([&model](std::string_view word, std::uint64_t count) {
        auto found = model.find(std::string(word));
        ASSERT_NE(found, model.end());
        EXPECT_EQ(found->second, count);
        model.erase(found);
    });
    EXPECT_TRUE(model.empty());
}

std::vector<std::string> lines_of(const std::string& text) {
    const amalgam::temp_folder own;
    line_reader reader(own.with("lines.txt", text));
    std::vector<std::string> lines;
    for (std::string_view line; reader.next(line);)
        lines.emplace_back(line);
    return lines;
}

TEST(line_reader, gives_lines_as_they_are_also_long_empty_and_unfinished_ones) {
    std::string longer(700 << 10, 'x');
    EXPECT_EQ(lines_of("a\n\n" + longer + "\nend"),
              (std::vector<std::string>{"a", "", longer, "end"}));
    EXPECT_EQ(lines_of("a\n"), std::vector<std::string>{"a"});
    EXPECT_TRUE(lines_of("").empty());
}

TEST(line_reader, names_the_file_it_cannot_read) {
    for (const char* path : {"no/such/file", "."}) {
        try {
            line_reader reader(path);
            FAIL() << path;
        } catch (const amalgam::error& why) {
            EXPECT_EQ(std::string(why.what()).rfind("the file \"" + std::string(path) + "\"", 0),
                      0u);
        }
    }
}

TEST(result, sorts_by_count_then_by_alphabet) {
    counter counted;
    counted.add_line("b a c a");
    EXPECT_EQ(to_text(counted.sum(), counted.words(), 2),
              "lines 1\nwords 4\nbytes 8\ndistinct 3\n2 a\n1 b\n");
}

TEST(options, wrong_ones_get_one_sentence) {
    options asked;
    EXPECT_EQ(read_options({"--top", "3", "x", "--repeat", "2", "y"}, asked), "");
    EXPECT_EQ(asked.files, (std::vector<std::string>{"x", "y"}));
    EXPECT_EQ(asked.top, 3u);
    EXPECT_EQ(asked.repeat, 2u);
    EXPECT_EQ(read_options({"--repeat", "x"}, asked),
              "--repeat is \"x\", expected a number from 1; example: --repeat 100");
    options none;
    EXPECT_EQ(read_options({}, none).rfind("there is no file to count, expected: wordcount ", 0),
              0u);
    EXPECT_EQ(read_options({"--fast"}, none).rfind("the option --fast is not known", 0), 0u);
    EXPECT_EQ(read_options({"--result"}, none),
              "--result has no file, expected one; example: --result out.txt");
}

}  // namespace
}  // namespace wordcount
