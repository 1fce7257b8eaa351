/** This tab's name among others of the browser, for as long as it is open. */
import { newRequestKey } from "../api/client";

export const TAB = newRequestKey();
