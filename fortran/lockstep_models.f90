! lk_model: a network, built by calls or from a YAML file. Its weights are drawn from the default generator, so call lk_manual_seed
! before. A step shares the model with its owner: both may end in any order. A model cannot be assigned, only passed.
module lockstep_models
    use lockstep_c
    use lockstep_arrays
    use, intrinsic :: iso_fortran_env, only: int32, int64
    implicit none
    private
    public :: lk_model, lk_manual_seed

    type :: lk_model
        type(c_ptr), private :: module = c_null_ptr
        integer, private :: count = 0
    contains
        procedure :: from_config => model_from_config
        procedure :: add => model_add
        procedure :: linear => model_linear
        procedure :: relu => model_relu
        procedure :: tanh => model_tanh
        procedure :: sigmoid => model_sigmoid
        procedure :: gelu => model_gelu
        procedure :: silu => model_silu
        procedure :: to => model_to
        procedure :: load_weights => model_load_weights
        procedure :: save_weights => model_save_weights
        procedure :: parameter_count => model_parameter_count
        procedure :: get => model_get
        procedure :: set => model_set
        procedure :: gradient => model_gradient
        procedure :: share => model_share
        procedure :: copy => model_copy
        procedure :: free => model_free
        procedure, private :: refuse => model_refuse
        generic :: assignment(=) => refuse
        final :: model_finish
    end type

    interface lk_manual_seed
        module procedure seed_int32, seed_int64
    end interface

contains

    subroutine seed_int32(seed)
        integer(int32), intent(in) :: seed
        call c_lk_manual_seed(int(seed, c_int64_t))
    end subroutine

    subroutine seed_int64(seed)
        integer(int64), intent(in) :: seed
        call c_lk_manual_seed(int(seed, c_int64_t))
    end subroutine

    ! The model of a config, or of a file that is one component: see lk_module_from_config in config.h.
    subroutine model_from_config(self, path, ierror)
        class(lk_model), intent(inout) :: self
        character(len=*), intent(in) :: path
        integer, intent(out), optional :: ierror
        call self%free()
        self%module = c_lk_module_from_config(trim(path)//c_null_char)
        call report(status_of(self%module), ierror)
    end subroutine

    ! Adds a layer at the end, by its name ('ReLU') or as a config has it ('{_target_: Dropout, p: 0.1}').
    subroutine model_add(self, layer, ierror)
        class(lk_model), intent(inout) :: self
        character(len=*), intent(in) :: layer
        integer, intent(out), optional :: ierror
        type(c_ptr) :: child
        character(len=12) :: name
        integer :: status
        status = LK_OK
        if (.not. c_associated(self%module)) then
            self%module = c_lk_sequential(c_null_ptr, 0_c_int)
            self%count = 0
            status = status_of(self%module)
        else if (self%count == 0) then
            status = failure(LK_ERR_INVALID, 'lk_model%add: this model is whole already: layers are added to an empty one')
        end if
        if (status == LK_OK) call make(layer, KIND_MODULE, child, status)
        if (status == LK_OK) then
            write (name, '(i0)') self%count
            status = c_lk_module_add_child(self%module, trim(name)//c_null_char, child)
        end if
        if (status == LK_OK) then
            self%count = self%count + 1
        else if (self%count == 0 .and. c_associated(self%module)) then
            call drop_empty(self)
        end if
        call report(status, ierror)
    end subroutine

    ! A container whose first layer could not be made.
    subroutine drop_empty(self)
        class(lk_model), intent(inout) :: self
        integer(c_int64_t) :: elements
        elements = c_lk_module_param_count(self%module)
        if (elements > 0) return
        call c_lk_module_free(self%module)
        self%module = c_null_ptr
    end subroutine

    subroutine model_linear(self, in_features, out_features, bias, ierror)
        class(lk_model), intent(inout) :: self
        integer, intent(in) :: in_features, out_features
        logical, intent(in), optional :: bias
        integer, intent(out), optional :: ierror
        character(len=80) :: text
        write (text, '(a,i0,a,i0,a)') '{_target_: Linear, args: [', in_features, ', ', out_features, ']'
        if (present(bias)) text = trim(text)//merge(', bias: true ', ', bias: false', bias)
        call self%add(trim(text)//'}', ierror)
    end subroutine

    subroutine model_relu(self, ierror)
        class(lk_model), intent(inout) :: self
        integer, intent(out), optional :: ierror
        call self%add('ReLU', ierror)
    end subroutine

    subroutine model_tanh(self, ierror)
        class(lk_model), intent(inout) :: self
        integer, intent(out), optional :: ierror
        call self%add('Tanh', ierror)
    end subroutine

    subroutine model_sigmoid(self, ierror)
        class(lk_model), intent(inout) :: self
        integer, intent(out), optional :: ierror
        call self%add('Sigmoid', ierror)
    end subroutine

    subroutine model_gelu(self, ierror)
        class(lk_model), intent(inout) :: self
        integer, intent(out), optional :: ierror
        call self%add('GELU', ierror)
    end subroutine

    subroutine model_silu(self, ierror)
        class(lk_model), intent(inout) :: self
        integer, intent(out), optional :: ierror
        call self%add('SiLU', ierror)
    end subroutine

    ! Converts the weights to LK_F64 or LK_F32. Arrays must then be of that kind. Before a step uses the model.
    subroutine model_to(self, dtype, ierror)
        class(lk_model), intent(inout) :: self
        integer, intent(in) :: dtype
        integer, intent(out), optional :: ierror
        integer :: status
        status = check(self)
        if (status == LK_OK) status = c_lk_module_to(self%module, int(dtype, c_int))
        call report(status, ierror)
    end subroutine

    ! Loads the weights of any file that Lockstep reads: safetensors, PyTorch's, NumPy's.
    subroutine model_load_weights(self, path, ierror)
        class(lk_model), intent(inout) :: self
        character(len=*), intent(in) :: path
        integer, intent(out), optional :: ierror
        integer :: status
        status = check(self)
        if (status == LK_OK) status = c_lk_load_weights(self%module, trim(path)//c_null_char, c_null_ptr)
        call report(status, ierror)
    end subroutine

    ! Writes the weights as a safetensors file, which appears whole or not at all.
    subroutine model_save_weights(self, path, ierror)
        class(lk_model), intent(inout) :: self
        character(len=*), intent(in) :: path
        integer, intent(out), optional :: ierror
        type(c_ptr) :: dict
        integer :: status
        status = check(self)
        dict = c_null_ptr
        if (status == LK_OK) then
            dict = c_lk_module_state_dict(self%module)
            status = status_of(dict)
        end if
        if (status == LK_OK) status = c_lk_save_safetensors(trim(path)//c_null_char, dict)
        if (c_associated(dict)) call c_lk_state_dict_free(dict)
        call report(status, ierror)
    end subroutine

    ! The number of all trainable weights.
    integer(int64) function model_parameter_count(self)
        class(lk_model), intent(in) :: self
        model_parameter_count = 0
        if (c_associated(self%module)) model_parameter_count = c_lk_module_param_count(self%module)
    end function

    ! Copies a parameter ('0.weight') into an array. PyTorch's (out, in) is w(in, out) here.
    subroutine model_get(self, path, into, ierror)
        class(lk_model), intent(in) :: self
        character(len=*), intent(in) :: path
        type(lk_tensor), intent(in), target :: into
        integer, intent(out), optional :: ierror
        type(c_ptr) :: handle
        type(c_param), pointer :: param
        integer :: status
        call find(self, path, handle, param, status)
        if (status == LK_OK) status = c_lk_tensor_copy(c_loc(into%c), param%value)
        call report(status, ierror)
    end subroutine

    ! Copies an array into a parameter.
    subroutine model_set(self, path, from, ierror)
        class(lk_model), intent(inout) :: self
        character(len=*), intent(in) :: path
        type(lk_tensor), intent(in), target :: from
        integer, intent(out), optional :: ierror
        type(c_ptr) :: handle
        type(c_param), pointer :: param
        integer :: status
        call find(self, path, handle, param, status)
        if (status == LK_OK) status = c_lk_tensor_copy(param%value, c_loc(from%c))
        if (status == LK_OK) call c_lk_param_changed(handle)
        call report(status, ierror)
    end subroutine

    ! Copies the gradient of a parameter, as the last training batch has left it, into an array.
    subroutine model_gradient(self, path, into, ierror)
        class(lk_model), intent(in) :: self
        character(len=*), intent(in) :: path
        type(lk_tensor), intent(in), target :: into
        integer, intent(out), optional :: ierror
        type(c_ptr) :: handle
        type(c_param), pointer :: param
        integer :: status
        call find(self, path, handle, param, status)
        if (status == LK_OK) then
            if (c_associated(param%grad)) then
                status = c_lk_tensor_copy(c_loc(into%c), param%grad)
            else
                status = failure(LK_ERR_INVALID, 'lk_model%gradient: '//trim(path)//': no step has trained it yet')
            end if
        end if
        call report(status, ierror)
    end subroutine

    subroutine find(self, path, handle, param, status)
        class(lk_model), intent(in) :: self
        character(len=*), intent(in) :: path
        type(c_ptr), intent(out) :: handle
        type(c_param), pointer, intent(out) :: param
        integer, intent(out) :: status
        nullify (param)
        handle = c_null_ptr
        status = check(self)
        if (status /= LK_OK) return
        handle = c_lk_module_param(self%module, trim(path)//c_null_char)
        status = status_of(handle)
        if (status == LK_OK) call c_f_pointer(handle, param)
    end subroutine

    integer function check(self)
        class(lk_model), intent(in) :: self
        check = LK_OK
        if (.not. c_associated(self%module)) &
            check = failure(LK_ERR_INVALID, 'lk_model: it is empty: add layers, or call from_config')
    end function

    ! One more holder of the module, for steps: who gets it frees it.
    type(c_ptr) function model_share(self)
        class(lk_model), intent(in) :: self
        model_share = c_null_ptr
        if (check(self) == LK_OK) model_share = c_lk_module_share(self%module)
    end function

    ! A copy with its own weights, for predictors: who gets it frees it.
    type(c_ptr) function model_copy(self)
        class(lk_model), intent(in) :: self
        model_copy = c_null_ptr
        if (check(self) == LK_OK) model_copy = c_lk_module_clone(self%module)
    end function

    ! Ends the model now. A model that goes out of scope ends by itself.
    subroutine model_free(self)
        class(lk_model), intent(inout) :: self
        if (c_associated(self%module)) call c_lk_module_free(self%module)
        self%module = c_null_ptr
        self%count = 0
    end subroutine

    impure elemental subroutine model_finish(self)
        type(lk_model), intent(inout) :: self
        call self%free()
    end subroutine

    subroutine model_refuse(self, other)
        class(lk_model), intent(inout) :: self
        class(lk_model), intent(in) :: other
        integer :: status
        status = failure(LK_ERR_INVALID, 'lk_model: a model cannot be assigned: pass it as an argument')
        call report(status)
    end subroutine
end module
