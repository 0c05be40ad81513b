#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include <ff/distributed/archive_traits.hpp>
#include <ff/distributed/message.hpp>

/// The archives that call `serialize(Archive&)` of items where the program does not include
/// cereal's own. Same bytes as cereal's portable binary archives on a little-endian machine.
namespace ff::detail {

/// Writes items into bytes of malloc().
///
/// Failure: throws std::bad_alloc, and what the item's function throws.
class output_archive {
public:
    static constexpr bool is_loading = false;
    using is_saving = std::true_type;

    output_archive() { plain(std::uint8_t{1}); }
    output_archive(const output_archive&) = delete;
    output_archive& operator=(const output_archive&) = delete;
    ~output_archive() { std::free(data_); }

    template <typename... T>
    output_archive& operator()(const T&... values) {
        (write(values), ...);
        return *this;
    }
    template <typename T>
    output_archive& operator&(const T& value) {
        return (*this)(value);
    }
    template <typename T>
    output_archive& operator<<(const T& value) {
        return (*this)(value);
    }
    void saveBinary(const void* bytes, std::size_t count) {
        if (count > room_ - size_) grow(count);
        if (count != 0) std::memcpy(data_ + size_, bytes, count);
        size_ += count;
    }
    /// For the next item, in the same memory.
    void restart() {
        size_ = 0;
        plain(std::uint8_t{1});
    }
    const char* data() const { return data_; }
    std::size_t size() const { return size_; }
    /// The bytes, which are the caller's to free() now.
    std::pair<char*, std::size_t> take() {
        room_ = 0;
        return {std::exchange(data_, nullptr), std::exchange(size_, 0)};
    }

private:
    void grow(std::size_t more) {
        const std::size_t room = size_ + more > 2 * room_ ? size_ + more + 64 : 2 * room_;
        void* const larger = std::realloc(data_, room);
        if (larger == nullptr) throw std::bad_alloc();
        data_ = static_cast<char*>(larger);
        room_ = room;
    }
    template <typename T>
    void plain(T value) {
        saveBinary(&value, sizeof value);
    }
    void count(std::size_t n) { plain(static_cast<std::uint64_t>(n)); }

    template <typename T>
    void write(const T& value) {
        auto& changeable = const_cast<T&>(value);
        if constexpr (is_plain<T>)
            plain(value);
        else if constexpr (is_standard<T>)
            standard(value);
        else if constexpr (has_member_serialize<T, output_archive>::value)
            changeable.serialize(*this);
        else if constexpr (has_member_save<T, output_archive>::value)
            value.save(*this);
        else if constexpr (has_free_serialize<T, output_archive>::value)
            serialize(*this, changeable);
        else
            save(*this, value);
    }
    template <typename T>
    void standard(const T& value) {
        if constexpr (is_string<T>::value) {
            count(value.size());
            saveBinary(value.data(), value.size() * sizeof(typename T::value_type));
        } else if constexpr (std::is_array_v<T> || is_std_array<T>::value) {
            if constexpr (has_plain_elements<T>)
                saveBinary(std::data(value), std::size(value) * sizeof(value[0]));
            else
                for (const auto& each : value)
                    write(each);
        } else if constexpr (is_plain_vector<T>::value) {
            count(value.size());
            saveBinary(value.data(), value.size() * sizeof(typename T::value_type));
        } else if constexpr (is_pair_like<T>::value) {
            write(value.first);
            write(value.second);
        } else if constexpr (is_tuple<T>::value) {
            std::apply([this](const auto&... each) { (this->write(each), ...); }, value);
        } else if constexpr (is_optional<T>::value) {
            plain(static_cast<std::uint8_t>(value ? 0 : 1));  // "null?", as cereal has it
            if (value) write(*value);
        } else if constexpr (is_unique_ptr<T>::value) {
            plain(static_cast<std::uint8_t>(value ? 1 : 0));
            if (value) write(*value);
        } else {
            count(value.size());
            for (const auto& each : value)
                write_element<typename T::value_type>(each);
        }
    }
    template <typename Element, typename T>
    void write_element(const T& each) {
        if constexpr (std::is_same_v<Element, bool>)
            plain(static_cast<bool>(each));  // std::vector<bool> gives no reference
        else
            write(each);
    }

    char* data_ = nullptr;
    std::size_t size_ = 0;
    std::size_t room_ = 0;
};

/// Reads what output_archive wrote.
///
/// Failure: throws std::runtime_error where the bytes end too early.
class input_archive {
public:
    static constexpr bool is_loading = true;
    using is_saving = std::false_type;

    input_archive(const char* bytes, std::size_t count) : at_(bytes), left_(count) {
        std::uint8_t little = 0;
        read(little);
        if (little != 1) throw std::runtime_error("the bytes begin with no mark of byte order");
    }
    template <typename... T>
    input_archive& operator()(T&&... values) {
        (read(values), ...);
        return *this;
    }
    template <typename T>
    input_archive& operator&(T&& value) {
        return (*this)(value);
    }
    template <typename T>
    input_archive& operator>>(T&& value) {
        return (*this)(value);
    }
    void loadBinary(void* bytes, std::size_t count) {
        if (count > left_) throw std::runtime_error("the bytes end too early");
        if (count != 0) std::memcpy(bytes, at_, count);
        at_ += count;
        left_ -= count;
    }

private:
    std::size_t count(std::size_t least_bytes) {
        std::uint64_t n = 0;
        read(n);
        // No allocation for what is not there.
        if (n > left_ / (least_bytes != 0 ? least_bytes : 1))
            throw std::runtime_error("the bytes end too early");
        return static_cast<std::size_t>(n);
    }
    template <typename T>
    void read(T& value) {
        if constexpr (is_plain<T>)
            loadBinary(&value, sizeof value);
        else if constexpr (is_standard<T>)
            standard(value);
        else if constexpr (has_member_serialize<T, input_archive>::value)
            value.serialize(*this);
        else if constexpr (has_member_load<T, input_archive>::value)
            value.load(*this);
        else if constexpr (has_free_serialize<T, input_archive>::value)
            serialize(*this, value);
        else
            load(*this, value);
    }
    template <typename T>
    T read_new() {
        T made{};
        read(made);
        return made;
    }
    template <typename T>
    void standard(T& value) {
        if constexpr (is_string<T>::value) {
            value.resize(count(sizeof(typename T::value_type)));
            loadBinary(value.data(), value.size() * sizeof(typename T::value_type));
        } else if constexpr (std::is_array_v<T> || is_std_array<T>::value) {
            if constexpr (has_plain_elements<T>)
                loadBinary(std::data(value), std::size(value) * sizeof(value[0]));
            else
                for (auto& each : value)
                    read(each);
        } else if constexpr (is_plain_vector<T>::value) {
            value.resize(count(sizeof(typename T::value_type)));
            loadBinary(value.data(), value.size() * sizeof(typename T::value_type));
        } else if constexpr (is_pair_like<T>::value) {
            read(value.first);
            read(value.second);
        } else if constexpr (is_tuple<T>::value) {
            std::apply([this](auto&... each) { (this->read(each), ...); }, value);
        } else if constexpr (is_optional<T>::value) {
            value.reset();
            if (read_new<std::uint8_t>() == 0) value = read_new<typename T::value_type>();
        } else if constexpr (is_unique_ptr<T>::value) {
            value.reset();
            if (read_new<std::uint8_t>() == 0) return;
            value = std::make_unique<typename T::element_type>();
            read(*value);
        } else if constexpr (is_map<T>::value) {
            value.clear();
            for (std::size_t left = count(1); left != 0; --left) {
                auto key = read_new<typename T::key_type>();
                value.emplace(std::move(key), read_new<typename T::mapped_type>());
            }
        } else if constexpr (is_set<T>::value) {
            value.clear();
            for (std::size_t left = count(1); left != 0; --left)
                value.insert(read_new<typename T::value_type>());
        } else {
            value.clear();
            for (std::size_t left = count(1); left != 0; --left)
                value.push_back(read_new<typename T::value_type>());
        }
    }

    const char* at_;
    std::size_t left_;
};

/// Whether the archives above take a T and all that is in it.
template <typename T, typename Archive, typename = void>
struct archivable
    : std::bool_constant<is_plain<T> || has_member_serialize<T, Archive>::value ||
                         has_free_serialize<T, Archive>::value ||
                         (Archive::is_loading ? has_member_load<T, Archive>::value ||
                                                    has_free_load<T, Archive>::value
                                              : has_member_save<T, Archive>::value ||
                                                    has_free_save<T, Archive>::value)> {};
template <typename T, typename Archive>
struct archivable<T, Archive,
                  std::enable_if_t<is_sequence<T>::value || is_set<T>::value ||
                                   is_string<T>::value || is_optional<T>::value>>
    : archivable<typename T::value_type, Archive> {};
template <typename T, typename Archive>
struct archivable<T, Archive, std::enable_if_t<is_map<T>::value>>
    : std::bool_constant<archivable<typename T::key_type, Archive>::value &&
                         archivable<typename T::mapped_type, Archive>::value> {};
template <typename A, typename B, typename Archive>
struct archivable<std::pair<A, B>, Archive>
    : std::bool_constant<archivable<A, Archive>::value && archivable<B, Archive>::value> {};
template <typename... T, typename Archive>
struct archivable<std::tuple<T...>, Archive>
    : std::bool_constant<(archivable<T, Archive>::value && ...)> {};
template <typename T, std::size_t N, typename Archive>
struct archivable<std::array<T, N>, Archive> : archivable<T, Archive> {};
template <typename T, std::size_t N, typename Archive>
struct archivable<T[N], Archive> : archivable<T, Archive> {};
template <typename T, typename Archive>
struct archivable<std::unique_ptr<T>, Archive> : archivable<T, Archive> {};

}  // namespace ff::detail
