! lk_tensor(array): a view of a Fortran array, for all procedures that take or fill one.
!
! The array is not copied. Its elements lie in column-major order, so a(n, m) is handed over as the tensor (m, n): the last
! dimension counts the samples, and features(8, 32) is a batch of 32 samples of 8 numbers. Sections with strides are views too.
! A step copies once what is not contiguous; a contiguous array is computed on where it lies. With same_order the tensor has the
! array's own order of dimensions: a(n, m) is (n, m), for arrays whose first dimension counts the samples. Those are copied once.
!
! The array needs the attribute TARGET (or POINTER), which the compiler checks, and must live until the call that gets the view
! has returned. Reals may have 1 to 7 dimensions, integers 1 to 4.
module lockstep_arrays
    use lockstep_c
    use, intrinsic :: iso_fortran_env, only: real32, real64, int32, int64
    implicit none
    private
    public :: lk_tensor

    type :: lk_tensor
        type(c_tensor) :: c
        logical, private :: same_order = .false.
    end type

    interface lk_tensor
        module procedure r32_1, r32_2, r32_3, r32_4, r32_5, r32_6, r32_7
        module procedure r64_1, r64_2, r64_3, r64_4, r64_5, r64_6, r64_7
        module procedure i32_1, i32_2, i32_3, i32_4, i64_1, i64_2, i64_3, i64_4
    end interface

    integer(int64), target, save :: nothing = 0 ! where an array without elements lies

contains

    ! The dimension of the tensor that dimension k of the array is.
    integer function place(t, k)
        type(lk_tensor), intent(in) :: t
        integer, intent(in) :: k
        place = t%c%shape%rank + 1 - k
        if (t%same_order) place = k
    end function

    ! The dtype and the shape, and the strides of an array without gaps.
    subroutine begin(t, dtype, extents, same_order)
        type(lk_tensor), intent(inout) :: t
        integer, intent(in) :: dtype, extents(:)
        logical, intent(in), optional :: same_order
        integer(c_int64_t) :: stride
        integer :: k
        if (present(same_order)) t%same_order = same_order
        t%c%dtype = dtype
        t%c%shape%rank = size(extents)
        t%c%data = c_loc(nothing)
        stride = 1
        do k = 1, size(extents)
            t%c%shape%dim(place(t, k)) = extents(k)
            t%c%stride(place(t, k)) = stride
            stride = stride*extents(k)
        end do
    end subroutine

    ! Where it lies: at(1) is the first element, at(1 + k) the next one along dimension k.
    subroutine lay(t, at)
        type(lk_tensor), intent(inout) :: t
        type(c_ptr), intent(in) :: at(:)
        integer(c_intptr_t) :: first, next, nbytes
        integer :: k
        nbytes = 8
        if (t%c%dtype == LK_F32 .or. t%c%dtype == LK_I32) nbytes = 4
        t%c%data = at(1)
        first = transfer(at(1), first)
        do k = 1, size(at) - 1
            next = transfer(at(1 + k), next)
            if (next /= first) t%c%stride(place(t, k)) = (next - first)/nbytes
        end do
    end subroutine

    function r32_1(x, same_order) result(t)
        real(real32), pointer, intent(in) :: x(:)
        logical, intent(in), optional :: same_order
        type(lk_tensor) :: t
        integer :: a(1), b(1)
        a = lbound(x); b = min(a + 1, ubound(x))
        call begin(t, LK_F32, shape(x), same_order)
        if (size(x) > 0) call lay(t, [c_loc(x(a(1))), c_loc(x(b(1)))])
    end function

    function r32_2(x, same_order) result(t)
        real(real32), pointer, intent(in) :: x(:,:)
        logical, intent(in), optional :: same_order
        type(lk_tensor) :: t
        integer :: a(2), b(2)
        a = lbound(x); b = min(a + 1, ubound(x))
        call begin(t, LK_F32, shape(x), same_order)
        if (size(x) > 0) call lay(t, [c_loc(x(a(1), a(2))), c_loc(x(b(1), a(2))), c_loc(x(a(1), b(2)))])
    end function

    function r32_3(x, same_order) result(t)
        real(real32), pointer, intent(in) :: x(:,:,:)
        logical, intent(in), optional :: same_order
        type(lk_tensor) :: t
        integer :: a(3), b(3)
        a = lbound(x); b = min(a + 1, ubound(x))
        call begin(t, LK_F32, shape(x), same_order)
        if (size(x) > 0) call lay(t, [c_loc(x(a(1), a(2), a(3))), c_loc(x(b(1), a(2), a(3))), &
            c_loc(x(a(1), b(2), a(3))), c_loc(x(a(1), a(2), b(3)))])
    end function

    function r32_4(x, same_order) result(t)
        real(real32), pointer, intent(in) :: x(:,:,:,:)
        logical, intent(in), optional :: same_order
        type(lk_tensor) :: t
        integer :: a(4), b(4)
        a = lbound(x); b = min(a + 1, ubound(x))
        call begin(t, LK_F32, shape(x), same_order)
        if (size(x) > 0) call lay(t, [c_loc(x(a(1), a(2), a(3), a(4))), c_loc(x(b(1), a(2), a(3), a(4))), &
            c_loc(x(a(1), b(2), a(3), a(4))), c_loc(x(a(1), a(2), b(3), a(4))), &
            c_loc(x(a(1), a(2), a(3), b(4)))])
    end function

    function r32_5(x, same_order) result(t)
        real(real32), pointer, intent(in) :: x(:,:,:,:,:)
        logical, intent(in), optional :: same_order
        type(lk_tensor) :: t
        integer :: a(5), b(5)
        a = lbound(x); b = min(a + 1, ubound(x))
        call begin(t, LK_F32, shape(x), same_order)
        if (size(x) > 0) call lay(t, [c_loc(x(a(1), a(2), a(3), a(4), a(5))), &
            c_loc(x(b(1), a(2), a(3), a(4), a(5))), c_loc(x(a(1), b(2), a(3), a(4), a(5))), &
            c_loc(x(a(1), a(2), b(3), a(4), a(5))), c_loc(x(a(1), a(2), a(3), b(4), a(5))), &
            c_loc(x(a(1), a(2), a(3), a(4), b(5)))])
    end function

    function r32_6(x, same_order) result(t)
        real(real32), pointer, intent(in) :: x(:,:,:,:,:,:)
        logical, intent(in), optional :: same_order
        type(lk_tensor) :: t
        integer :: a(6), b(6)
        a = lbound(x); b = min(a + 1, ubound(x))
        call begin(t, LK_F32, shape(x), same_order)
        if (size(x) > 0) call lay(t, [c_loc(x(a(1), a(2), a(3), a(4), a(5), a(6))), &
            c_loc(x(b(1), a(2), a(3), a(4), a(5), a(6))), c_loc(x(a(1), b(2), a(3), a(4), a(5), a(6))), &
            c_loc(x(a(1), a(2), b(3), a(4), a(5), a(6))), c_loc(x(a(1), a(2), a(3), b(4), a(5), a(6))), &
            c_loc(x(a(1), a(2), a(3), a(4), b(5), a(6))), c_loc(x(a(1), a(2), a(3), a(4), a(5), b(6)))])
    end function

    function r32_7(x, same_order) result(t)
        real(real32), pointer, intent(in) :: x(:,:,:,:,:,:,:)
        logical, intent(in), optional :: same_order
        type(lk_tensor) :: t
        integer :: a(7), b(7)
        a = lbound(x); b = min(a + 1, ubound(x))
        call begin(t, LK_F32, shape(x), same_order)
        if (size(x) > 0) call lay(t, [c_loc(x(a(1), a(2), a(3), a(4), a(5), a(6), a(7))), &
            c_loc(x(b(1), a(2), a(3), a(4), a(5), a(6), a(7))), &
            c_loc(x(a(1), b(2), a(3), a(4), a(5), a(6), a(7))), &
            c_loc(x(a(1), a(2), b(3), a(4), a(5), a(6), a(7))), &
            c_loc(x(a(1), a(2), a(3), b(4), a(5), a(6), a(7))), &
            c_loc(x(a(1), a(2), a(3), a(4), b(5), a(6), a(7))), &
            c_loc(x(a(1), a(2), a(3), a(4), a(5), b(6), a(7))), &
            c_loc(x(a(1), a(2), a(3), a(4), a(5), a(6), b(7)))])
    end function

    function r64_1(x, same_order) result(t)
        real(real64), pointer, intent(in) :: x(:)
        logical, intent(in), optional :: same_order
        type(lk_tensor) :: t
        integer :: a(1), b(1)
        a = lbound(x); b = min(a + 1, ubound(x))
        call begin(t, LK_F64, shape(x), same_order)
        if (size(x) > 0) call lay(t, [c_loc(x(a(1))), c_loc(x(b(1)))])
    end function

    function r64_2(x, same_order) result(t)
        real(real64), pointer, intent(in) :: x(:,:)
        logical, intent(in), optional :: same_order
        type(lk_tensor) :: t
        integer :: a(2), b(2)
        a = lbound(x); b = min(a + 1, ubound(x))
        call begin(t, LK_F64, shape(x), same_order)
        if (size(x) > 0) call lay(t, [c_loc(x(a(1), a(2))), c_loc(x(b(1), a(2))), c_loc(x(a(1), b(2)))])
    end function

    function r64_3(x, same_order) result(t)
        real(real64), pointer, intent(in) :: x(:,:,:)
        logical, intent(in), optional :: same_order
        type(lk_tensor) :: t
        integer :: a(3), b(3)
        a = lbound(x); b = min(a + 1, ubound(x))
        call begin(t, LK_F64, shape(x), same_order)
        if (size(x) > 0) call lay(t, [c_loc(x(a(1), a(2), a(3))), c_loc(x(b(1), a(2), a(3))), &
            c_loc(x(a(1), b(2), a(3))), c_loc(x(a(1), a(2), b(3)))])
    end function

    function r64_4(x, same_order) result(t)
        real(real64), pointer, intent(in) :: x(:,:,:,:)
        logical, intent(in), optional :: same_order
        type(lk_tensor) :: t
        integer :: a(4), b(4)
        a = lbound(x); b = min(a + 1, ubound(x))
        call begin(t, LK_F64, shape(x), same_order)
        if (size(x) > 0) call lay(t, [c_loc(x(a(1), a(2), a(3), a(4))), c_loc(x(b(1), a(2), a(3), a(4))), &
            c_loc(x(a(1), b(2), a(3), a(4))), c_loc(x(a(1), a(2), b(3), a(4))), &
            c_loc(x(a(1), a(2), a(3), b(4)))])
    end function

    function r64_5(x, same_order) result(t)
        real(real64), pointer, intent(in) :: x(:,:,:,:,:)
        logical, intent(in), optional :: same_order
        type(lk_tensor) :: t
        integer :: a(5), b(5)
        a = lbound(x); b = min(a + 1, ubound(x))
        call begin(t, LK_F64, shape(x), same_order)
        if (size(x) > 0) call lay(t, [c_loc(x(a(1), a(2), a(3), a(4), a(5))), &
            c_loc(x(b(1), a(2), a(3), a(4), a(5))), c_loc(x(a(1), b(2), a(3), a(4), a(5))), &
            c_loc(x(a(1), a(2), b(3), a(4), a(5))), c_loc(x(a(1), a(2), a(3), b(4), a(5))), &
            c_loc(x(a(1), a(2), a(3), a(4), b(5)))])
    end function

    function r64_6(x, same_order) result(t)
        real(real64), pointer, intent(in) :: x(:,:,:,:,:,:)
        logical, intent(in), optional :: same_order
        type(lk_tensor) :: t
        integer :: a(6), b(6)
        a = lbound(x); b = min(a + 1, ubound(x))
        call begin(t, LK_F64, shape(x), same_order)
        if (size(x) > 0) call lay(t, [c_loc(x(a(1), a(2), a(3), a(4), a(5), a(6))), &
            c_loc(x(b(1), a(2), a(3), a(4), a(5), a(6))), c_loc(x(a(1), b(2), a(3), a(4), a(5), a(6))), &
            c_loc(x(a(1), a(2), b(3), a(4), a(5), a(6))), c_loc(x(a(1), a(2), a(3), b(4), a(5), a(6))), &
            c_loc(x(a(1), a(2), a(3), a(4), b(5), a(6))), c_loc(x(a(1), a(2), a(3), a(4), a(5), b(6)))])
    end function

    function r64_7(x, same_order) result(t)
        real(real64), pointer, intent(in) :: x(:,:,:,:,:,:,:)
        logical, intent(in), optional :: same_order
        type(lk_tensor) :: t
        integer :: a(7), b(7)
        a = lbound(x); b = min(a + 1, ubound(x))
        call begin(t, LK_F64, shape(x), same_order)
        if (size(x) > 0) call lay(t, [c_loc(x(a(1), a(2), a(3), a(4), a(5), a(6), a(7))), &
            c_loc(x(b(1), a(2), a(3), a(4), a(5), a(6), a(7))), &
            c_loc(x(a(1), b(2), a(3), a(4), a(5), a(6), a(7))), &
            c_loc(x(a(1), a(2), b(3), a(4), a(5), a(6), a(7))), &
            c_loc(x(a(1), a(2), a(3), b(4), a(5), a(6), a(7))), &
            c_loc(x(a(1), a(2), a(3), a(4), b(5), a(6), a(7))), &
            c_loc(x(a(1), a(2), a(3), a(4), a(5), b(6), a(7))), &
            c_loc(x(a(1), a(2), a(3), a(4), a(5), a(6), b(7)))])
    end function

    function i32_1(x, same_order) result(t)
        integer(int32), pointer, intent(in) :: x(:)
        logical, intent(in), optional :: same_order
        type(lk_tensor) :: t
        integer :: a(1), b(1)
        a = lbound(x); b = min(a + 1, ubound(x))
        call begin(t, LK_I32, shape(x), same_order)
        if (size(x) > 0) call lay(t, [c_loc(x(a(1))), c_loc(x(b(1)))])
    end function

    function i32_2(x, same_order) result(t)
        integer(int32), pointer, intent(in) :: x(:,:)
        logical, intent(in), optional :: same_order
        type(lk_tensor) :: t
        integer :: a(2), b(2)
        a = lbound(x); b = min(a + 1, ubound(x))
        call begin(t, LK_I32, shape(x), same_order)
        if (size(x) > 0) call lay(t, [c_loc(x(a(1), a(2))), c_loc(x(b(1), a(2))), c_loc(x(a(1), b(2)))])
    end function

    function i32_3(x, same_order) result(t)
        integer(int32), pointer, intent(in) :: x(:,:,:)
        logical, intent(in), optional :: same_order
        type(lk_tensor) :: t
        integer :: a(3), b(3)
        a = lbound(x); b = min(a + 1, ubound(x))
        call begin(t, LK_I32, shape(x), same_order)
        if (size(x) > 0) call lay(t, [c_loc(x(a(1), a(2), a(3))), c_loc(x(b(1), a(2), a(3))), &
            c_loc(x(a(1), b(2), a(3))), c_loc(x(a(1), a(2), b(3)))])
    end function

    function i32_4(x, same_order) result(t)
        integer(int32), pointer, intent(in) :: x(:,:,:,:)
        logical, intent(in), optional :: same_order
        type(lk_tensor) :: t
        integer :: a(4), b(4)
        a = lbound(x); b = min(a + 1, ubound(x))
        call begin(t, LK_I32, shape(x), same_order)
        if (size(x) > 0) call lay(t, [c_loc(x(a(1), a(2), a(3), a(4))), c_loc(x(b(1), a(2), a(3), a(4))), &
            c_loc(x(a(1), b(2), a(3), a(4))), c_loc(x(a(1), a(2), b(3), a(4))), &
            c_loc(x(a(1), a(2), a(3), b(4)))])
    end function

    function i64_1(x, same_order) result(t)
        integer(int64), pointer, intent(in) :: x(:)
        logical, intent(in), optional :: same_order
        type(lk_tensor) :: t
        integer :: a(1), b(1)
        a = lbound(x); b = min(a + 1, ubound(x))
        call begin(t, LK_I64, shape(x), same_order)
        if (size(x) > 0) call lay(t, [c_loc(x(a(1))), c_loc(x(b(1)))])
    end function

    function i64_2(x, same_order) result(t)
        integer(int64), pointer, intent(in) :: x(:,:)
        logical, intent(in), optional :: same_order
        type(lk_tensor) :: t
        integer :: a(2), b(2)
        a = lbound(x); b = min(a + 1, ubound(x))
        call begin(t, LK_I64, shape(x), same_order)
        if (size(x) > 0) call lay(t, [c_loc(x(a(1), a(2))), c_loc(x(b(1), a(2))), c_loc(x(a(1), b(2)))])
    end function

    function i64_3(x, same_order) result(t)
        integer(int64), pointer, intent(in) :: x(:,:,:)
        logical, intent(in), optional :: same_order
        type(lk_tensor) :: t
        integer :: a(3), b(3)
        a = lbound(x); b = min(a + 1, ubound(x))
        call begin(t, LK_I64, shape(x), same_order)
        if (size(x) > 0) call lay(t, [c_loc(x(a(1), a(2), a(3))), c_loc(x(b(1), a(2), a(3))), &
            c_loc(x(a(1), b(2), a(3))), c_loc(x(a(1), a(2), b(3)))])
    end function

    function i64_4(x, same_order) result(t)
        integer(int64), pointer, intent(in) :: x(:,:,:,:)
        logical, intent(in), optional :: same_order
        type(lk_tensor) :: t
        integer :: a(4), b(4)
        a = lbound(x); b = min(a + 1, ubound(x))
        call begin(t, LK_I64, shape(x), same_order)
        if (size(x) > 0) call lay(t, [c_loc(x(a(1), a(2), a(3), a(4))), c_loc(x(b(1), a(2), a(3), a(4))), &
            c_loc(x(a(1), b(2), a(3), a(4))), c_loc(x(a(1), a(2), b(3), a(4))), &
            c_loc(x(a(1), a(2), a(3), b(4)))])
    end function

end module
