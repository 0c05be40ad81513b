#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <amalgam/core/detail/memory.hpp>
#include <amalgam/rpc/engine.hpp>

namespace amalgam {

namespace detail {

/// The part of a provider that knows no types: its id, its identity, and its names.
class provider_base {
public:
    provider_base(engine& where, std::string_view identity, procedure_options how);
    provider_base(const provider_base&) = delete;
    provider_base& operator=(const provider_base&) = delete;
    ~provider_base();

    engine& where() const noexcept { return where_; }
    std::uint16_t id() const noexcept { return how_.provider; }
    bool undefine(std::string_view name);

protected:
    procedure_options options(std::string_view about) const;
    /// Remembers a name that was defined, so that the destructor undefines it.
    void add_name(std::string_view name);

private:
    engine& where_;
    std::string pool_;
    procedure_options how_;
    struct defined_name {
        std::string name;
        std::uint64_t number;  ///< Of this definition: another one of the name is not ours.
    };
    bool undefine(const defined_name& which);

    std::vector<defined_name> names_;
};

/// Calls a member function of an object that it keeps alive; the first parameter may be a
/// responder, a stream_reader or a stream_writer.
template <typename Signature, typename Object, typename Method>
struct method_call;
template <typename R, typename... A, typename Object, typename Method>
struct method_call<R(A...), Object, Method> {
    std::shared_ptr<Object> object;
    Method method;
    R operator()(A... arguments) { return ((*object).*method)(std::forward<A>(arguments)...); }
};

}  // namespace detail

/// Serves member functions of one object under one provider id.
///
///     class shelf { public: void put(std::string book); std::vector<std::string> books() const; };
///     provider<shelf> mine(server, "shelf", std::make_shared<shelf>(), {.provider = 3});
///     mine.define("shelf.put", &shelf::put);
///     …  client.procedure<void(std::string)>("shelf.put").on(there, 3)("Ulysses");
///
/// Peers can ask which identity a provider id has: see identity_of(). Several objects may serve the
/// same names under different ids.
/// Owner:   shares the object, as do its procedures: it lives until the last call to it has ended.
///          The engine must outlive the provider. Destroying a provider undefines its procedures,
///          and no others of their names; calls that run finish. Where it cannot wait for the
///          engine's stream (in call_then() or an inline handler of another engine, in a tasklet),
///          that happens soon after.
/// Threads: one at a time. The object's functions run as handlers do: by default all on one stream.
/// Failure: the constructor throws error{invalid} for an id that has an identity already, an
///          identity of no or more than 255 bytes, and a null object; error{closed} after stop().
template <typename T>
class provider : public detail::provider_base {
public:
    provider(engine& where, std::string_view identity, std::shared_ptr<T> object,
             procedure_options how = {})
        : provider_base(where, object == nullptr ? std::string_view{} : identity, how),
          object_(std::move(object)) {}

    /// As engine::define(), with the provider's options. `about`: procedure_options::about.
    template <typename Method>
    requires(std::is_member_function_pointer_v<Method>) void define(std::string_view name,
                                                                    Method method,
                                                                    std::string_view about = {}) {
        using signature = typename detail::callable_signature<Method>::type;
        where().define(name, detail::method_call<signature, T, Method>{object_, method},
                       options(about));
        add_name(name);
    }

    /// The object that is served.
    T& object() const noexcept { return *object_; }

private:
    std::shared_ptr<T> object_;
};

/// The identity of provider `id` at a peer; empty if it has none. Parks the ULT or thread.
/// Failure: throws what calls throw.
std::string identity_of(engine& here, const peer& there, std::uint16_t id);

}  // namespace amalgam
