#include <algorithm>
#include <string>
#include <type_traits>
#include <vector>

#include <amalgam/rpc/archive.hpp>

#include "fuzz/fuzz.hpp"
#include "rpc/codec/sample_values.hpp"

// Values of every serializable type, from strangers' bytes. The highest bit of the first byte
// selects the encoding, the others the type: an index into the samples.
namespace amalgam::fuzz {

namespace {

template <typename T>
void write(body& into, const T& value, encoding as) {
    archive_writer(into, as)(value);
}

/// Whatever can be read can be written, and then reads the same.
template <typename T>
void read_as(const_bytes input, encoding as) {
    archive_reader reader(input, as);
    T value{};
    reader(value);
    if (!reader.ok()) {
        require(reader.remaining() == 0, "after a fault nothing is left to read");
        return;
    }
    body first;
    write(first, value, as);
    require(first.size() <= 4 * input.size() + 64, "a value is not much longer than what it is");
    archive_reader again(first.bytes(), as);
    T same{};
    again(same);
    require(again.ok() && again.remaining() == 0, "what was written can be read");
    body second;
    write(second, same, as);
    bool equal = std::ranges::equal(first.bytes(), second.bytes());
    if constexpr (requires {
                      { value == same } -> std::convertible_to<bool>;
                  }) {
        equal = equal || value == same;  // Unordered containers change their order.
    }
    require(equal, "and is the same value");
}

/// Views of the input; reads them to verify that they are in bounds.
template <typename T>
void view_as(const_bytes input, encoding as) {
    archive_reader reader(input, as);
    std::span<const T> first, second;
    std::string_view text;
    reader(first, text, second);
    require(reinterpret_cast<std::uintptr_t>(first.data()) % alignof(T) == 0, "it is aligned");
    require(first.size_bytes() <= input.size() && text.size() <= input.size(),
            "a view is not larger than the message");
    if (!reader.ok()) return;
    body into;
    archive_writer writer(into, as);
    writer(first, text, second);
    require(into.size() == input.size() - reader.remaining(), "and has what was there");
}

using reading = void (*)(const_bytes, encoding);

const std::vector<reading>& readings() {
    static const std::vector<reading> all = [] {
        std::vector<reading> made;
        samples::for_each([&made](const auto& value) {
            made.push_back(&read_as<std::remove_cvref_t<decltype(value)>>);
        });
        made.push_back(&view_as<char>);
        made.push_back(&view_as<double>);
        made.push_back(&view_as<std::int16_t>);
        made.push_back(&view_as<samples::raw_style>);
        made.push_back(&view_as<samples::raw_pixel>);
        require(made.size() <= 128, "an index fits seven bits");
        return made;
    }();
    return all;
}

}  // namespace

void run_one(const_bytes input) {
    if (input.empty()) return;
    const auto choice = std::to_integer<std::size_t>(input[0]);
    const std::size_t index = choice & 127;
    if (index >= readings().size()) return;
    // After the first byte, the input would not be aligned like a message.
    const std::vector<std::byte> message(input.begin() + 1, input.end());
    readings()[index](message, choice >= 128 ? encoding::xdr : encoding::native);
}

std::span<const std::string_view> seeds() {
    static const std::vector<std::string> texts = [] {
        std::vector<std::string> made;
        const auto keep = [&made](std::size_t index, const auto& write_it) {
            for (const encoding as : {encoding::native, encoding::xdr}) {
                body into;
                write_it(into, as);
                const auto choice = index | (as == encoding::xdr ? 128 : 0);
                made.push_back(std::string(1, static_cast<char>(choice)));
                made.back().append(reinterpret_cast<const char*>(into.bytes().data()), into.size());
            }
        };
        std::size_t index = 0;
        samples::for_each([&](const auto& value) {
            keep(index++, [&](body& into, encoding as) { write(into, value, as); });
        });
        for (; index < readings().size(); ++index) {
            keep(index, [](body& into, encoding as) {
                archive_writer(into, as)(std::vector<samples::raw_style>(3), std::string("text"),
                                         std::vector<double>(2));
            });
        }
        return made;
    }();
    static const std::vector<std::string_view> views(texts.begin(), texts.end());
    return views;
}

}  // namespace amalgam::fuzz
