#pragma once

#include <istream>
#include <ostream>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include <ff/distributed/archive.hpp>
#include <ff/distributed/free_functions.hpp>
#include <ff/distributed/message.hpp>

// The program's own cereal, where it includes it: these are complete then.
namespace cereal {
class PortableBinaryOutputArchive;
class PortableBinaryInputArchive;
namespace traits {
template <class T, class Archive>
struct is_output_serializable;
template <class T, class Archive>
struct is_input_serializable;
}  // namespace traits
}  // namespace cereal

/// How the items of a typed node become bytes and items again: by the item's own members, else by
/// functions beside it, else by cereal if the program includes its portable binary archives, else
/// by `serialize(Archive&)`.
namespace ff::detail {

template <typename T, typename = void>
struct is_complete : std::false_type {};
template <typename T>
struct is_complete<T, std::void_t<decltype(sizeof(T))>> : std::true_type {};

template <typename T, typename Archive, typename = void>
struct cereal_takes : std::false_type {};
template <typename T, typename Archive>
struct cereal_takes<T, Archive, std::enable_if_t<is_complete<Archive>::value>>
    : std::bool_constant<std::is_same_v<Archive, cereal::PortableBinaryOutputArchive>
                             ? cereal::traits::is_output_serializable<T, Archive>::value
                             : cereal::traits::is_input_serializable<T, Archive>::value> {};

template <typename T, typename = void>
struct has_own_serialize : std::false_type {};
template <typename T>
struct has_own_serialize<
    T,
    std::enable_if_t<std::is_same_v<decltype(std::declval<T&>().serialize()), serializedBuffer_t>>>
    : std::true_type {};
template <typename T, typename = void>
struct has_own_deserialize : std::false_type {};
template <typename T>
struct has_own_deserialize<
    T, std::enable_if_t<std::is_same_v<
           decltype(std::declval<T&>().deserialize(std::declval<char*>(), size_t{})), bool>>>
    : std::true_type {};
template <typename T, typename = void>
struct has_own_alloc : std::false_type {};
template <typename T>
struct has_own_alloc<
    T, std::enable_if_t<std::is_same_v<decltype(T::alloc(std::declval<char*>(), size_t{})), T*>>>
    : std::true_type {};
template <typename T, typename = void>
struct has_own_free : std::false_type {};
template <typename T>
struct has_own_free<T, std::void_t<decltype(T::freeTask(std::declval<T*>()))>> : std::true_type {};

/// A stream buffer over bytes of malloc().
class growing_buffer : public std::streambuf {
public:
    std::pair<char*, size_t> take() { return bytes_.take(); }

protected:
    int overflow(int c) override {
        if (c == traits_type::eof()) return traits_type::not_eof(c);
        const char one = traits_type::to_char_type(c);
        bytes_.saveBinary(&one, 1);
        return c;
    }
    std::streamsize xsputn(const char* from, std::streamsize count) override {
        bytes_.saveBinary(from, static_cast<size_t>(count));
        return count;
    }

private:
    struct raw : output_archive {
        raw() { std::free(take().first); }
    } bytes_;
};
class fixed_buffer : public std::streambuf {
public:
    fixed_buffer(char* bytes, size_t count) { setg(bytes, bytes, bytes + count); }
};

template <typename T, typename Cereal>
bool cereal_serialize(void* item, message2_t* to) {
    growing_buffer bytes;
    {
        std::ostream stream(&bytes);
        Cereal archive(stream);
        archive(*static_cast<const T*>(item));
    }
    to->setBuff(bytes.take());
    to->cleanup = true;
    return true;
}
template <typename T>
bool own_serialize(void* item, message2_t* to) {
    const serializedBuffer_t given = static_cast<T*>(item)->serialize();
    to->data = given.data;
    to->size = given.size;
    to->blobOwner = given.owner;
    to->freeCallback = given.release;
    to->cleanup = true;
    return given.copied;
}
template <typename T>
bool archive_serialize(void* item, message2_t* to) {
    output_archive archive;
    archive(*static_cast<const T*>(item));
    to->setBuff(archive.take());
    to->cleanup = true;
    return true;
}

template <typename T>
void archive_write(void* item, output_archive& to) {
    to(*static_cast<const T*>(item));
}

/// How items of the type go, if no node has another function for that.
template <typename T>
void free_item(void* item) {
    if constexpr (has_own_free<T>::value)
        T::freeTask(static_cast<T*>(item));
    else if constexpr (has_free_freetask<T>::value)
        free_function_freetask<T>(item);
    else if constexpr (std::is_destructible_v<T>)
        delete static_cast<T*>(item);
}
template <typename T>
void* alloc_item(char* bytes, size_t count) {
    if constexpr (has_own_alloc<T>::value)
        return T::alloc(bytes, count);
    else if constexpr (has_free_alloctask<T>::value)
        return free_function_alloctask<T>(bytes, count);
    else
        return new T;
}

/// An item that is being read. If that throws, it goes, unless the program has given the node an
/// alloctaskF of its own: it alone knows how such items go.
template <typename T>
class item_read {
public:
    template <typename Node>
    item_read(Node* self, char* bytes, size_t count)
        : item_(self->alloctaskF ? static_cast<T*>(self->alloctaskF(bytes, count)) : nullptr) {
        if (item_ == nullptr)
            throw std::runtime_error("its alloctaskF gave no item, expected memory for one");
        using alloc = void* (*)(char*, size_t);
        const alloc* const usual = self->alloctaskF.template target<alloc>();
        ours_ = usual != nullptr && *usual == &alloc_item<T>;
    }
    item_read(const item_read&) = delete;
    item_read& operator=(const item_read&) = delete;
    ~item_read() {
        if (item_ != nullptr && ours_) free_item<T>(item_);
    }
    T& operator*() const { return *item_; }
    T* operator->() const { return item_; }
    T* whole() { return std::exchange(item_, nullptr); }

private:
    T* item_;
    bool ours_ = false;
};
template <typename T, typename Node>
void* own_deserialize(message2_t* from, bool& copied, Node* self) {
    item_read<T> item(self, from->data, from->size);
    copied = item->deserialize(from->data, from->size);
    return item.whole();
}
template <typename T, typename Node>
void* free_function_deserialize(message2_t* from, bool& copied, Node* self) {
    const byte_range bytes(from->data, from->size);
    if constexpr (has_free_read<T>) {
        item_read<T> item(self, from->data, from->size);
        copied = deserialize(bytes, &*item);
        return item.whole();
    } else {
        T* item = nullptr;
        if constexpr (std::is_void_v<typename free_deserialize_new<T>::type>) {
            deserialize(bytes, item);
            copied = false;
        } else {
            copied = deserialize(bytes, item);
        }
        return item;
    }
}
template <typename T, typename Cereal, typename Node>
void* cereal_deserialize(message2_t* from, bool&, Node* self) {
    fixed_buffer bytes(from->data, from->size);
    std::istream stream(&bytes);
    Cereal archive(stream);
    item_read<T> item(self, nullptr, 0);
    archive(*item);
    return item.whole();
}
template <typename T, typename Node>
void* archive_deserialize(message2_t* from, bool&, Node* self) {
    input_archive archive(from->data, from->size);
    item_read<T> item(self, nullptr, 0);
    archive(*item);
    return item.whole();
}

/// `Written` and `Read`: cereal's archives, as parameters, since they may be incomplete here.
template <typename In, typename Out, typename Node,
          typename Written = cereal::PortableBinaryOutputArchive,
          typename Read = cereal::PortableBinaryInputArchive>
void use_codec(Node& node) {
    if constexpr (has_own_serialize<Out>::value)
        node.serializeF = &own_serialize<Out>;
    else if constexpr (has_free_bytes<Out>)
        node.serializeF = &free_function_serialize<Out>;
    else if constexpr (cereal_takes<Out, Written>::value)
        node.serializeF = &cereal_serialize<Out, Written>;
    else if constexpr (archivable<Out, output_archive>::value) {
        node.serializeF = &archive_serialize<Out>;
        node.serializeF.writes(&archive_write<Out>);
    }

    if constexpr (has_own_free<Out>::value || has_free_freetask<Out>::value ||
                  std::is_destructible_v<Out>)
        node.freetaskF = &free_item<Out>;
    if constexpr (has_own_alloc<In>::value || has_free_alloctask<In>::value ||
                  std::is_default_constructible_v<In>)
        node.alloctaskF = &alloc_item<In>;

    if constexpr (has_own_deserialize<In>::value)
        node.deserializeF = &own_deserialize<In, Node>;
    else if constexpr (has_free_read_new<In> ||
                       (has_free_read<In> &&
                        (std::is_default_constructible_v<In> || has_own_alloc<In>::value ||
                         has_free_alloctask<In>::value)))
        node.deserializeF = &free_function_deserialize<In, Node>;
    else if constexpr (std::is_default_constructible_v<In> || has_own_alloc<In>::value ||
                       has_free_alloctask<In>::value) {
        if constexpr (cereal_takes<In, Read>::value)
            node.deserializeF = &cereal_deserialize<In, Read, Node>;
        else if constexpr (archivable<In, input_archive>::value)
            node.deserializeF = &archive_deserialize<In, Node>;
        node.deserializeF.only_reads(true);
    }
}

}  // namespace ff::detail
