// A case of fastflow_groups_program: items that travel by the program's own cereal, where it is
// installed. In a source of its own: elsewhere cereal is not to be seen.
#if __has_include(<cereal/archives/portable_binary.hpp>)
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <cereal/archives/portable_binary.hpp>
#include <cereal/types/map.hpp>
#include <cereal/types/memory.hpp>
#include <cereal/types/optional.hpp>
#include <cereal/types/string.hpp>
#include <cereal/types/utility.hpp>
#include <cereal/types/vector.hpp>
#endif

#include <ff/dff.hpp>

#include "fastflow_groups_testing.hpp"

using namespace ff;
using namespace ff::testing_groups;

#if __has_include(<cereal/archives/portable_binary.hpp>)

namespace {

struct inner {
    short number = 0;
    std::vector<double> numbers;
    template <class Archive>
    void serialize(Archive& archive) {
        archive(number, numbers);
    }
};
/// What both archives take.
struct letter {
    long number = 0;
    std::string text;
    std::map<std::string, std::vector<int>> table;
    std::optional<int> maybe, never;
    std::unique_ptr<inner> part, none;
    std::pair<char, bool> both;
    std::vector<bool> bits;
    /// How often cereal has read or written one.
    static inline long by_cereal = 0;

    letter() = default;
    explicit letter(long n)
        : number(n),
          text(static_cast<std::size_t>(n), 'a'),
          table{{"one", {1}}, {"more", {1, 2, static_cast<int>(n)}}},
          maybe(static_cast<int>(-n)),
          part(std::make_unique<inner>()),
          both('b', n % 2 == 0),
          bits{true, false, n % 2 == 0} {
        part->number = static_cast<short>(n);
        part->numbers = {0.5, static_cast<double>(n)};
    }
    template <class Archive>
    void serialize(Archive& archive) {
        if constexpr (std::is_base_of_v<cereal::detail::OutputArchiveBase, Archive> ||
                      std::is_base_of_v<cereal::detail::InputArchiveBase, Archive>)
            ++by_cereal;
        archive(number, text, table, maybe, never);
        archive(part, none, both, bits);
    }
};
template <typename Archive>
std::string cereal_s_bytes(const letter& what) {
    std::ostringstream stream;
    Archive archive(stream);
    archive(what);
    return stream.str();
}
std::string our_bytes(const letter& what) {
    detail::output_archive archive;
    archive(what);
    const auto [bytes, count] = archive.take();
    const std::string copy(bytes, count);
    std::free(bytes);
    return copy;
}
constexpr long letters = 100;

int by_cereal() {
    struct source : ff_node_t<letter> {
        letter* svc(letter*) override {
            for (long i = 0; i != letters; ++i)
                ff_send_out(new letter(i));
            return EOS;
        }
    } first;
    struct sink : ff_node_t<letter> {
        letter* svc(letter* got) override {
            const std::unique_ptr<letter> owned(got);
            same += our_bytes(*got) == our_bytes(letter(items));
            ++items;
            return GO_ON;
        }
        long items = 0, same = 0;
    } last;
    ff_Pipe<> whole(first, last);
    first.createGroup("G1");
    last.createGroup("G2");
    const int result = whole.run_and_wait_end();
    // Those that our archive has written do not count, nor those within this process.
    check("letters that cereal has read or written", letter::by_cereal, letters);
    if (DFF_getMyGroup() == "G2") check("letters that are as they were", last.same, letters);
    return result;
}

/// Our archive writes what cereal writes, and reads it.
int as_cereal() {
    long same = 0, read = 0;
    for (long i = 0; i != letters; ++i) {
        const letter what(i);
        std::string bytes = cereal_s_bytes<cereal::PortableBinaryOutputArchive>(what);
        same += bytes == our_bytes(what);
        letter back;
        detail::input_archive archive(bytes.data(), bytes.size());
        archive(back);
        read += our_bytes(back) == our_bytes(what);
    }
    check("letters with the same bytes", same, letters);
    check("letters of cereal's that we read", read, letters);
    return same == letters && read == letters ? 0 : -1;
}

}  // namespace

cases ff::testing_groups::cases_of_cereal() {
    return {{"by_cereal", by_cereal}, {"as_cereal", as_cereal}};
}

#else

cases ff::testing_groups::cases_of_cereal() {
    return {};
}

#endif
