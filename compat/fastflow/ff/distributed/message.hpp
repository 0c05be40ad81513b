#pragma once

#include <cstddef>
#include <functional>
#include <sstream>
#include <string>
#include <type_traits>
#include <utility>

/// Items between groups as bytes, and how a node makes one of the other by hand.
namespace ff {

class ff_node;

using blobReleaseF_t = void (*)(void* owner, char* data, size_t size);

/// What `serialize()` of an item returns. `copied`: the bytes are the runtime's, which free()s
/// them, or calls `release`; the item is deleted at once. Else they are part of the item, which
/// lives until `release(owner, data, size)`, or free(data) without a `release`.
struct serializedBuffer_t {
    char* data = nullptr;
    size_t size = 0;
    bool copied = true;
    void* owner = nullptr;
    blobReleaseF_t release = nullptr;

    serializedBuffer_t() = default;
    serializedBuffer_t(char* bytes, size_t count, bool is_copied = true, void* whose = nullptr,
                       blobReleaseF_t how = nullptr)
        : data(bytes), size(count), copied(is_copied), owner(whose), release(how) {}
};

/// One item as bytes.
///
/// Owner: with `cleanup` it frees its bytes: by `freeCallback`, else by free().
struct message2_t {
    char* data = nullptr;
    size_t size = 0;
    bool cleanup = false;
    void* blobOwner = nullptr;
    blobReleaseF_t freeCallback = nullptr;

    message2_t() = default;
    message2_t(char* bytes, size_t count, bool owned = true)
        : data(bytes), size(count), cleanup(owned) {}
    message2_t(const message2_t&) = delete;
    message2_t& operator=(const message2_t&) = delete;
    ~message2_t() { cleanContent(); }

    void setBuff(std::pair<char*, size_t>&& bytes) {
        cleanContent();
        data = bytes.first;
        size = bytes.second;
    }
    void cleanContent();
};

/// The same as a stream buffer, for functions of earlier versions of FastFlow: written to as a
/// stream, or pointed at bytes.
///
/// Owner: bytes given with `cleanup` are deleted as new char[].
class dataBuffer : public std::stringbuf {
public:
    dataBuffer() : std::stringbuf(std::ios::in | std::ios::out | std::ios::binary) {}
    dataBuffer(char* bytes, size_t count, bool cleanup = false) : dataBuffer() {
        setBuffer(bytes, count, cleanup);
    }
    dataBuffer(const dataBuffer&) = delete;
    dataBuffer& operator=(const dataBuffer&) = delete;
    ~dataBuffer() override { drop(); }

    void setBuffer(char* bytes, size_t count, bool cleanup = true) {
        drop();
        setg(bytes, bytes, bytes + count);
        bytes_ = bytes;
        count_ = count;
        cleanup_ = cleanup;
    }
    char* getPtr() const { return bytes_ != nullptr ? bytes_ : eback(); }
    size_t getLen() const { return bytes_ != nullptr ? count_ : str().size(); }
    void doNotCleanup() { cleanup_ = false; }
    bool isCleanup() const { return cleanup_; }
    bool isStream() const { return bytes_ == nullptr; }

private:
    void drop() {
        if (cleanup_) delete[] bytes_;
        bytes_ = nullptr;
        cleanup_ = false;
    }
    char* bytes_ = nullptr;
    size_t count_ = 0;
    bool cleanup_ = false;
};

namespace detail {

class output_archive;

/// bool(void* item, message2_t*), or bool(void* item, dataBuffer&). True: the item can go.
class serialize_function {
public:
    serialize_function() = default;
    serialize_function(std::nullptr_t) {}
    template <typename F,
              typename = std::enable_if_t<!std::is_same_v<std::decay_t<F>, serialize_function> &&
                                          !std::is_same_v<std::decay_t<F>, std::nullptr_t>>>
    serialize_function(F function) {
        if constexpr (std::is_invocable_r_v<bool, F&, void*, message2_t*>)
            call_ = std::move(function);
        else
            call_ = [older = std::move(function)](void* item, message2_t* to) mutable {
                return through(older, item, *to);
            };
    }
    explicit operator bool() const { return static_cast<bool>(call_); }
    bool operator()(void* item, message2_t* to) const { return call_(item, to); }

    /// The same, into memory that is there already; the item can go.
    using into_archive = void (*)(void* item, output_archive& to);
    void writes(into_archive how) { writes_ = how; }
    into_archive writes() const { return writes_; }

private:
    static bool through(const std::function<bool(void*, dataBuffer&)>& older, void* item,
                        message2_t& to);
    std::function<bool(void*, message2_t*)> call_;
    into_archive writes_ = nullptr;
};

/// void*(message2_t*, bool& copied, ff_node*), or void*(dataBuffer&, bool& copied). The result is
/// the item; with copied = false it keeps the bytes, which then are the program's to free().
class deserialize_function {
public:
    deserialize_function() = default;
    deserialize_function(std::nullptr_t) {}
    template <typename F,
              typename = std::enable_if_t<!std::is_same_v<std::decay_t<F>, deserialize_function> &&
                                          !std::is_same_v<std::decay_t<F>, std::nullptr_t>>>
    deserialize_function(F function) {
        if constexpr (std::is_invocable_r_v<void*, F&, message2_t*, bool&, ff_node*>)
            call_ = std::move(function);
        else
            call_ = [older = std::move(function)](message2_t* from, bool& copied,
                                                  ff_node*) mutable -> void* {
                dataBuffer bytes(from->data, from->size);
                return older(bytes, copied);
            };
    }
    explicit operator bool() const { return static_cast<bool>(call_); }
    void* operator()(message2_t* from, bool& copied, ff_node* self) const {
        return call_(from, copied, self);
    }

    /// It never keeps the bytes, which may be those of other items, too.
    void only_reads(bool it_does) { only_reads_ = it_does; }
    bool only_reads() const { return only_reads_; }

private:
    bool only_reads_ = false;
    std::function<void*(message2_t*, bool&, ff_node*)> call_;
};

}  // namespace detail

}  // namespace ff
